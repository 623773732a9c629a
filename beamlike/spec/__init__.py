"""Parts of pipelines from text. May import `api` and all below it."""
