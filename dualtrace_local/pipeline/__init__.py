"""Stage order, run folder, resume: the one place, with the command line, that joins the rooms."""
