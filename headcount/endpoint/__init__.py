"""OpenAI's API over a simulated fleet, in real time; needs the optional extra `web`."""
