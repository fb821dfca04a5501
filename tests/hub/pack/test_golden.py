"""The format must not drift: these bytes were written by version 1 and are read as long as there is a version
1.
"""

from __future__ import annotations

import io

from hub.pack.writer import PackWriter
from hub.records import Commit, object_id
from tests.hub.pack.build import NOON, commit, noise, snapshot, verify, write

# Nothing in it shrinks, so that not a byte depends on the version of zstd.
RAW_ID = "570e402c2881e198f4f5942f91d37f586ef9b056876667bbcdd00891b8c27bb4"
RAW_HEX = """
8f4d5041434b0d0a01000000000000006f6e6574776fcd072cd8be6f9f620019323032362d30332d32345431323a3030
3a30302b30303a3030010000000200000061007692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73f
f431ed02000000040000000e000000000000000e0000000000000003000000a3c00e9001000000000000004500000000
0000004500000000000000010000004b1920d302000000000000007692c3ad3540bb803c020b3aee66cd8887123234ea
0c6e7143c0add73ff431ed3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3be57a3ab5c
77df3f0985b4aef3ec8f9d134386095cf0dd2ec672dc85d9afb3825c2fdce6056daf1b9882f4b9a4ed5df7dfe23f2345
30d515ee3e0c2a149b203703000000000000000300000000000000080000000000000045000000000000006300000000
000000e800000000000000bec4466d4022e7bee36720e4fb27713867cd8019a1c40b1230fa633557e5bcc201000000b8
22e0de0d0a4b4341504d8f
"""
# Two versions of a file, their snapshots and commits, every block a zstd frame.
ZSTD_ID = "b45d352696d8f802e218f67601f2b96d1f8f9599d879a1382a8cbfed009056ec"
ZSTD_HEX = """
8f4d5041434b0d0a010000000000000028b52ffd20f70d0100d06c696e65206f6620746578740a616e64206f6e65206d
6f72650a01005aa0e61728b52ffd604400bd0500e4090019323032362d30332d32345431323a30303a30302b05000000
310000006469722f66696c652d30313233007465787400e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca4
95991b7852b8553706426cf5a9f66a4f1a41efe817d98391ad25bdf1352537229182ca32ddd94e0101000000d09c002f
9e267a929f6e2f2fb630e1c405e27107985ac930c6355ecf5cd69ee1000000000000000008004b13b0b780e46eecf71e
6a3ed80736e3b256da220628b52ffd60c402050e0006e0612f803769039c2160a5bc4560dbb7ff835b01906b13add716
9292ac27a4919449ba6660ac6d772faddcf9232ba2b7fb01530055005c00c87168fd2b86a815824921b5da9e2613ca70
a4134dd291277c685c7992f909911066851223cdc18608a55fbfbac1677496bd720a69eb1cf0ecb36fe4db21ebfc60cd
7a9d5b678003575e559645b644008407015c19efcf7f366a3766a51506b8b273fd25a29932a90d7e400b1abc1a7f3253
21e01c857314d0125028219d84850e6250f9f9578a4aa78220f80553fa0b443ba70e6fb8bf3041fec6db1a439dda613b
49f1e9fd4e1e8ed2f381406363be4abf4a3834c0e75fe015869f1300a25468e5654a4441c32fbcf9091a8e0b854a3409
e5e45566919399880a27cd90b25230dee512d1b8b2e00807fa8bc849bf455416f827acf828e3016669c0379fe12d4f29
1a041e653f7d58899db943bbbcc1b50e614ab9b46c3d74bed482cc1b25670bb605b7b7db42481ff0176ba79baf4bccad
75efec475b04353f923a581fc54e3b68d39ed5cb7f9c828e1d7ed63ab70705130049038282b31209b4781d03c06b1e9a
1df1629e436ca5a2b80247438498d15b71cb1b82b16944cdc0ea57fcd41d0fcf46a0e210ce03000000060000002a0000
0000000000f7000000000000000200000049c6d5860101000000000000c1000000000000004401000000000000020000
000d391b120201000000000000ca01000000000000c40300000000000002000000f874357e0301000000000000370642
6cf5a9f66a4f1a41efe817d98391ad25bdf1352537229182ca32ddd94ed09c002f9e267a929f6e2f2fb630e1c405e271
07985ac930c6355ecf5cd69ee1801864243b24c2ba4ee6290fd3ce1c0a4308bdc3c27881a8eab3b1e1bcd5499cd8c087
6eb5cf268c1c1b68b67d32cd7b646d9be67139447f916b8d6129d7da3606991c7c75d91f9cefce7e10b5068f494e7102
aeb8c6e6e322bcb98fa324aaf305ae32d20199160d579b490ea1c601312080740c75435d82f185dade91697391750000
00000000008200000000000000f4000000000000005000000000000000c1010000000000000302000000000000c50200
0000000000580100000000000004f236ad7f2d26b48fd96581eb63387c6ee398514c36e020a46196223b98ff6a010000
0027947d110d0a4b4341504d8f
"""


def test_bytes_of_a_pack_without_compression_are_pinned() -> None:
    data, summary = write([b"one", b"two", b"", noise(8)], [snapshot({"a": object_id(b"one")})])
    assert data.hex() == "".join(RAW_HEX.split())
    assert summary.mpack_id == RAW_ID == object_id(data)


def test_larger_pack_without_compression_is_pinned() -> None:
    objects = [noise(1000 * n, n) for n in range(1, 40)] + [noise((1 << 20) + 1), noise((8 << 20) + 1)]
    assert write(objects)[1].mpack_id == "b15ddd0e146579474317ccf7de43dbfb199ad0caac36dd419580f7709d9e33c2"


def zstd_pack() -> tuple[list[bytes], list[Commit]]:
    objects = [b"line of text\n" * 9, b"line of text\n" * 9 + b"and one more\n"]
    manifest = {f"dir/file-{n}": object_id(b"") for n in range(4)}
    first, second = (snapshot({**manifest, "text": object_id(content)}) for content in objects)
    root = commit(first, "first")
    return objects, [root, commit(second, "second", (root.commit_id,))]


def test_pack_of_version_1_is_read() -> None:
    objects, commits = zstd_pack()
    reader = verify(bytes.fromhex("".join(ZSTD_HEX.split())), expect_id=ZSTD_ID)
    assert [b"".join(chunks) for _, chunks in reader.iter_objects()] == objects
    assert list(reader.commits()) == commits
    snapshots = list(reader.snapshots())
    assert [one.snapshot_id for one in snapshots] == [one.snapshot_id for one in commits]
    assert [one.manifest["text"] for one in snapshots] == [object_id(content) for content in objects]
    assert {one.created_at for one in snapshots} == {NOON}


def test_it_can_be_copied_block_by_block_into_itself() -> None:
    reader = verify(bytes.fromhex("".join(ZSTD_HEX.split())))
    out = io.BytesIO()
    writer = PackWriter(out)
    for block in reader.blocks:
        writer.copy_block(reader.stored_chunks(block), block, list(reader.entries.of_block(block)))
    assert writer.finish().mpack_id == ZSTD_ID
