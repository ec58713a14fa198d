"""Python source and captured values to the intermediate form."""
