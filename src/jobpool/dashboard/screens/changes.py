"""Tells open pages that something has changed, so that they show themselves anew."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from jobpool.dashboard.asked import Asked


async def show(asked: Asked) -> Response:
    """Answer with events until the page is closed."""
    return StreamingResponse(
        asked.served.live.changes(), media_type="text/event-stream"
    )
