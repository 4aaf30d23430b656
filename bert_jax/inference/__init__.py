"""Opening models of any format and applying them to text: features, filled-in masks."""
