"""The shipped checks: ``check_<topic>.py::check_<claim>``."""
