"""Why a window has not fired."""
