"""What the compiled routers know of the engines, and how it is kept up."""
