"""What materialising each kind of asset does. `lsm_assets.factory` turns these into definitions."""
