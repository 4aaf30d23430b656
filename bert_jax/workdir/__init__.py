"""What a work directory says of its run: settings, versions, where it branched from."""
