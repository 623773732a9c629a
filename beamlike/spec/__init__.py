"""Parts of pipelines that are written as text. May import `api`, `replaying` and all below them."""
