"""The rules of the wire, sans-IO."""
