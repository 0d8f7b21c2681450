"""Facts about devices that models are built for, known without having one here.

`devices` lists them; a new device is a row there.
"""

from __future__ import annotations

from compressor.fleet.devices import CURRENT, DEVICES, Device, by_capability, by_name

__all__ = ["CURRENT", "DEVICES", "Device", "by_capability", "by_name"]
