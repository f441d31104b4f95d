// What the theme leaves out for those who use no mouse, or hear the page.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) box.tabIndex = 0; // to scroll by keys
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
});
