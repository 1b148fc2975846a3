"""Any image in, one canonical form out; bad ones are None and leave no trace."""

import io
import logging
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from privsyn.data.images import (
    FORMATS,
    check_pixels,
    contact_sheet,
    decode,
    decode_png,
    encode,
    from_array,
    read_image,
    to_content,
)

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)


def saved(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def quarters(mode="RGB"):
    """Red, green above blue, white: tells every turn and mirror image from every other."""
    image = Image.new("RGB", (16, 16), "white")
    image.paste("red", (0, 0, 8, 8))
    image.paste("lime", (8, 0, 16, 8))
    image.paste("blue", (0, 8, 8, 16))
    return image.convert(mode)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "MPO"])
def test_formats_give_the_same_picture(kind):
    lossless = {"WEBP": {"lossless": True}, "JPEG2000": {"irreversible": False}}
    try:
        raw = saved(quarters(), kind, **lossless.get(kind, {}))
    except (KeyError, OSError):
        pytest.skip(f"this Pillow writes no {kind}")
    found = read_image(raw, 16, "RGB")
    assert found is not None
    error = np.abs(found.astype(int) - np.asarray(quarters()).astype(int))
    assert np.median(error) <= (6 if kind == "JPEG" else 2)
    assert found[2, 2].argmax() == 0
    assert found[2, 13].argmax() == 1
    assert found[13, 2].argmax() == 2


def test_a_camera_s_two_pictures_in_one_file_are_read():
    raw = saved(quarters(), "MPO", save_all=True, append_images=[quarters().rotate(180)])
    assert Image.open(io.BytesIO(raw)).format == "MPO"
    assert read_image(raw, 16, "RGB")[2, 2].argmax() == 0


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize(("wanted", "shape"), [("L", (8, 8)), ("RGB", (8, 8, 3))])
@pytest.mark.parametrize("size", [(8, 8), (1, 1), (5, 31), (300, 200)])
def test_modes_and_sizes(mode, wanted, shape, size):
    raw = saved(Image.new("L", size, 255).convert(mode), "TIFF")
    found = read_image(raw, 8, wanted)
    assert found is not None
    assert found.shape == shape
    assert found.dtype == np.uint8
    assert (found == 255).all()


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_more_than_eight_bits_are_no_image(kind):
    """What the image spans decides nothing: 8 bits in 16 are refused as 16 are."""
    values = RAMP.astype(kind)
    assert read_image(saved(Image.fromarray(values), "TIFF"), 16, "L") is None
    assert from_array(values, 16, "L") is None


def test_transparency_is_white():
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 128))
    palette = Image.new("L", (4, 4), 7).convert("P")
    assert (read_image(saved(clear), 4, "RGB") == 255).all()
    assert (np.abs(read_image(saved(half), 4, "L").astype(int) - 127) <= 1).all()
    assert (read_image(saved(palette, transparency=7), 4, "L") == 255).all()
    assert (read_image(saved(Image.new("L", (4, 4), 7), transparency=7), 4, "L") == 255).all()


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [(1, 0), (2, 1), (3, None), (4, 2), (5, 0), (6, 2), (7, None), (8, 1)],
)
def test_orientation_of_the_camera(orientation, corner):
    """The color that comes to lie in the upper left: red 0, green 1, blue 2, white None."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = read_image(saved(quarters(), exif=exif), 16, "RGB")[2, 2]
    assert (found.min() > 200) if corner is None else (found.argmax() == corner)


def test_a_broken_orientation_counts_for_none():
    raw = saved(quarters(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert read_image(raw, 16, "RGB") is not None


def test_first_frame_of_an_animation():
    raw = saved(
        Image.new("L", (8, 8), 0), "GIF", save_all=True, append_images=[Image.new("L", (8, 8), 255)]
    )
    assert (read_image(raw, 8, "L") == 0).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF", "PPM"])
def test_every_cut_is_none_or_the_whole(kind):
    raw = saved(quarters(), kind)
    whole = read_image(raw, 16, "RGB")
    for length in range(0, len(raw), 7):
        found = read_image(raw[:length], 16, "RGB")
        assert found is None or (found == whole).all(), length
    assert read_image(raw[: len(raw) // 2], 16, "RGB") is None


def test_a_bomb_is_refused_by_its_header():
    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    assert read_image(raw, 8, "L") is None


def test_a_document_that_needs_another_program_is_refused():
    raw = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"
    assert Image.open(io.BytesIO(raw)).format == "EPS"
    assert read_image(raw, 8, "L") is None


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_nothing_raises(data):
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]))
    raw = bytearray(saved(quarters(), kind))
    for _ in range(data.draw(st.integers(1, 12))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = read_image(bytes(raw), 8, "L")
    assert found is None or found.shape == (8, 8)


def test_nothing_is_said_of_an_image(caplog, capfd):
    exif = Image.Exif()
    exif[0x010E] = "vermilion ocelot"
    raws = [saved(quarters(), kind, exif=exif) for kind in ("TIFF", "JPEG", "PNG")]
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for raw in raws:
            assert read_image(raw, 8, "L") is not None
            read_image(raw[: len(raw) // 2], 8, "L")
            read_image(raw.replace(b"ocelot", b"\xff" * 6), 8, "L")
    assert caplog.records == []
    assert caught == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shape", [(1, 1), (28, 28), (5, 9, 3), (64, 64, 3)])
def test_round_trip(shape):
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    assert (decode(to_content(pixels)) == pixels).all()
    assert encode(pixels) == encode(pixels.copy()) == encode(np.asfortranarray(pixels))
    assert decode(to_content(pixels)).shape == shape


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((4, 4), np.float32),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 1), np.uint8),
        np.zeros(4, np.uint8),
        np.zeros((0, 4), np.uint8),
    ],
)
def test_what_is_no_image_is_refused(pixels):
    with pytest.raises(ValueError, match="an image of"):
        check_pixels(pixels)


@pytest.mark.parametrize(
    "raw", [b"", b"text", saved(quarters("P")), saved(quarters(), "BMP"), encode(RAMP)[:50]]
)
def test_what_is_no_canonical_png_is_refused(raw):
    with pytest.raises(ValueError, match="PNG"):
        decode_png(raw)


def test_contact_sheet_shows_every_image_enlarged():
    images = [np.full((28, 28), value, np.uint8) for value in (0, 50, 100, 150, 200)]
    sheet = decode_png(contact_sheet(images, 3))
    assert sheet.shape == (2 * 86 + 2, 3 * 86 + 2)
    assert [int(sheet[44 + 86 * (i // 3), 44 + 86 * (i % 3)]) for i in range(5)] == [
        0, 50, 100, 150, 200,
    ]  # fmt: skip
    assert (sheet[:2] == 255).all()
    assert (sheet[86:88] == 255).all()
    assert (sheet[88:, 174:] == 255).all()
