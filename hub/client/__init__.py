"""The client: pushes a directory to a hub, clones a repository from one. Knows no Flask and no SQLAlchemy."""
