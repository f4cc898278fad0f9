"""A store as it is after a day at a shop: for pictures, and for pages in a browser."""
