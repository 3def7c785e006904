"""Charts as data, and as inline SVG that follows the page's colours."""
