// Shows what the file holds.

showPage(DATA.page);
document.documentElement.dataset.ready = "";
