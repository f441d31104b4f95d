"""Pages that browsers show: reports of runs, comparisons and studies, and the page of a run that goes on."""
