"""The product: a hub for content-addressed repositories. `hub.app.create_app` puts it together."""
