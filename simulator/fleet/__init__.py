"""Pools of servers behind a router."""
