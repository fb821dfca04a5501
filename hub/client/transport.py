"""The hub's HTTP interface as seen from a client: one method a call, checked values in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlencode

from hub.client import answers
from hub.client.address import check_link, parse_address
from hub.client.answers import PackOffer, Pushed, PushStatus, Refs
from hub.client.calls import Calls
from hub.client.download import Download
from hub.client.errors import LinkRefused, VerificationFailed
from hub.client.patience import Timing
from hub.client.progress import Progress

if TYPE_CHECKING:
    from hub.client.api_answers import CommitPage
    from hub.client.upload_answers import PartsToSend, Presigned, UploadLink

IDS_PER_CALL = 20_000
PUSH_READ_SECONDS = 900.0
"""The hub verifies a whole pack before it answers a push."""
LINKS_MAX = 3
"""How many links one transfer may use up."""


class Remote:
    """One repository on a hub. A context manager; `close` ends its connections.

    Every call may raise what `Calls.call` does. The token goes to the address of the repository only, never
    to a link, and into no message.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timing: Timing | None = None,
        progress: Progress | None = None,
        insecure: bool = False,
    ) -> None:
        """Open nothing yet. Raises BadInput for an unusable address or a token that may not go there.

        `insecure`: the token may go over plain http to another machine.
        """
        self._address = parse_address(url)
        self._calls = Calls(self._address, token, timing, progress, insecure=insecure)

    @property
    def url(self) -> str:
        """The repository's address, without a trailing slash."""
        return self._address.url

    @property
    def slug(self) -> str:
        """The repository's name, the last part of its address."""
        return self._address.slug

    @property
    def timing(self) -> Timing:
        """How long calls wait."""
        return self._calls.timing

    def close(self) -> None:
        """Close all connections."""
        self._calls.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def refs(self) -> Refs:
        """Ask for the branches and their heads."""
        return answers.parse_refs(self._call("GET", "refs"))

    def commits(self, ref: str | None, limit: int, after: str | None = None) -> CommitPage:
        """Ask for at most `limit` commits of a branch (None: the default), newest first, from `after` on."""
        from hub.client import api_answers

        asked = {"ref": ref, "limit": limit, "after": after}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        address = self._address
        url = f"{address.origin}/api/repositories/{address.owner}/{address.slug}/commits?{query}"
        return api_answers.parse_commits(self._calls.call("GET", url))

    def filter_objects(self, object_ids: Iterable[str]) -> set[str]:
        """Return those of `object_ids` that the repository does not hold."""
        wanted = sorted(set(object_ids))
        missing: set[str] = set()
        for start in range(0, len(wanted), IDS_PER_CALL):
            batch = wanted[start : start + IDS_PER_CALL]
            missing |= answers.parse_missing(self._call("POST", "filter-objects", {"object_ids": batch}))
        return missing.intersection(wanted)

    def presign(self, mpack_id: str, size: int, branch: str, head: str, expected_head: str | None) -> Presigned:
        """Announce a pack of `size` bytes and the push that follows; the answer says what is to be sent, and where."""
        from hub.client.upload_answers import parse_presigned

        asked = {"mpack_id": mpack_id, "size": size, "branch": branch, "head": head, "expected_head": expected_head}
        return parse_presigned(self._call("POST", "push/mpack/presign", asked))

    def upload(self, upload: UploadLink | PartsToSend, file: IO[bytes], size: int) -> None:
        """Send the pack, or the parts of it. Raises LinkRefused when a link has expired."""
        from hub.client.upload import PartSender, send_file
        from hub.client.upload_answers import UploadLink

        for link in [upload] if isinstance(upload, UploadLink) else [part.link for part in upload.parts]:
            check_link(self._address, link.url)
        self._calls.progress.begin("Uploading", size, "bytes")
        if isinstance(upload, UploadLink):
            send_file(self._calls.http, upload, file, size, self._calls.patience(), self._calls.progress)
        else:
            PartSender(self._calls.http, file, size, self._calls.patience, self._calls.progress).send(upload)

    def push(self, mpack_key: str, branch: str, head: str, *, expected_head: str | None, force: bool = False) -> Pushed:
        """Move `branch` to `head`, a commit of the uploaded pack.

        `expected_head` is the lease: what the branch must be at, None for «it must not exist». `force` allows
        commits of the branch to be left behind; the lease holds for it too.
        """
        asked = {
            "mpack_key": mpack_key,
            "branch": branch,
            "head": head,
            "force": force,
            "expected_head": expected_head,
        }
        return answers.parse_pushed(self._call("POST", "push/mpack", asked, read_seconds=PUSH_READ_SECONDS))

    def push_inline(
        self, mpack_id: str, pack: bytes, branch: str, head: str, *, expected_head: str | None, force: bool = False
    ) -> Pushed:
        """Move `branch` to `head`, a commit of the pack that comes along. Otherwise as `push`."""
        asked = {
            "mpack_key": f"mpacks/{mpack_id}",
            "branch": branch,
            "head": head,
            "force": "true" if force else "false",
            "expected_head": expected_head or "",
        }
        self._calls.progress.begin("Pushing", None)
        path = f"push/mpack?{urlencode(asked)}"
        return answers.parse_pushed(self._call("POST", path, pack, read_seconds=PUSH_READ_SECONDS))

    def push_status(self, push_id: str) -> PushStatus:
        """Ask where a push stands."""
        return answers.parse_push_status(self._call("GET", f"pushes/{quote(push_id, safe='')}"))

    def fetch_mpack(self, want: Sequence[str] = (), have: Sequence[str] = ()) -> PackOffer:
        """Ask for a pack of `want` (none: all branches) without what `have` reaches.

        Waits while it is being made. Raises NotReady, which names the jobs, when that takes longer than
        `timing` allows.
        """
        fields = self._call("POST", "fetch/mpack", {"want": list(want), "have": list(have)})
        return answers.parse_offer(fields, may_be_empty=bool(have))

    def download(self, offer: PackOffer, path: Path, renew: Callable[[], PackOffer] | None = None) -> PackOffer:
        """Fetch the pack of `offer` into the new file `path`; return the offer that was met in the end.

        A link that expires on the way is renewed by `renew`, by default the question that clones ask. Raises
        VerificationFailed when the bytes are not the promised ones.
        """
        download: Download | None = None
        for attempt in range(1, LINKS_MAX + 1):
            if offer.mpack_id is None or offer.url is None:
                raise VerificationFailed("The hub offers no pack any more; the repository has become empty.")
            check_link(self._address, offer.url)
            if download is None or download.mpack_id != offer.mpack_id:
                path.unlink(missing_ok=True)
                # Where the hub sends the pack itself, each connection would take a thread of it.
                several = not offer.url.startswith(f"{self._address.origin}/")
                download = Download(
                    self._calls.http, path, offer.mpack_id, offer.size, self._calls.progress, several=several
                )
            self._calls.progress.begin("Downloading", offer.size, "bytes")
            try:
                download.receive(offer.url, self._calls.patience())
            except LinkRefused:
                if attempt == LINKS_MAX:
                    raise
                offer = (renew or self.fetch_mpack)()
            else:
                return offer
        raise AssertionError("the loop above returns or raises")

    def _call(
        self,
        method: str,
        path: str,
        payload: Mapping[str, Any] | bytes | None = None,
        *,
        read_seconds: float | None = None,
    ) -> dict[str, Any]:
        return self._calls.call(method, f"{self.url}/{path}", payload, read_seconds=read_seconds)
