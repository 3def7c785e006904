"""How a result is shown: text, JSON, report, page and notebook. A view never simulates and never decides."""
