"""What can be measured, and what of it is measured when nobody says otherwise."""
import dataclasses

UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GIB": 1 << 30}


def size_of(text):
    """Bytes, a multiple of 4. Raises ValueError."""
    digits = text.strip().rstrip("BKMGibkmg ")
    unit = text.strip()[len(digits):].strip().upper()
    if not digits.isdigit() or unit not in UNITS or int(digits) * UNITS[unit] < 4:
        raise ValueError(f"'{text}' is no size of at least 4 bytes, such as 4, 64KiB or 25MiB")
    return int(digits) * UNITS[unit] // 4 * 4


@dataclasses.dataclass(frozen=True)
class Operation:
    sizes: str = "64KiB,1MiB,25MiB"
    quick_sizes: str = "64KiB,1MiB"
    dtypes: tuple = ("f32",)
    has_parts: bool = False  # a buffer consists of equal parts, one for each rank

    def default_sizes(self, quick):
        return [size_of(word) for word in (self.quick_sizes if quick else self.sizes).split(",")]

    def elements(self, sizes, ranks):
        """How many elements the larger of a rank's buffers has, for each of the sizes, which are those of f32."""
        unit = ranks if self.has_parts else 1
        return list(dict.fromkeys(max(size // 4 // unit, 1) * unit for size in sizes))


# In the order in which they are shown; the names are those of operation.h.
OPERATIONS = {
    "all_reduce": Operation("4,64,1KiB,8KiB,64KiB,1MiB,4MiB,25MiB,64MiB", "4,64KiB,1MiB,4MiB", ("f32", "bf16")),
    "reduce_scatter": Operation(has_parts=True),
    "all_gather": Operation(has_parts=True),
    "broadcast": Operation(),
    "reduce": Operation(),
    "all_to_all": Operation(has_parts=True),
    "send_recv": Operation("4,4MiB", "4,4MiB"),
}
