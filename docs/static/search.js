// A browser does not fetch from files, so the pages that the search shows excerpts of are in the script pages.js.
const fetchOthers = window.fetch;
window.fetch = async (url) => (url in PAGES ? new Response(PAGES[url]) : fetchOthers(url));

// Sphinx's own function looks for "#a.b" as an element of the class b, and for index entries, which are empty.
Search.htmlToText = (page, anchor) => {
  const { body } = new DOMParser().parseFromString(page, "text/html");
  body.querySelectorAll(".headerlink").forEach((link) => link.remove());
  const place = anchor ? body.querySelector(`[id="${anchor.slice(1)}"]`) : null;
  return (place?.closest("section, dl") ?? body).textContent;
};

// Sphinx looks for the stems of words. A stem such as "energi" may be in no text.
const summary = Search.makeSearchSummary;
Search.makeSearchSummary = (page, stems, anchor) => {
  const query = new URLSearchParams(location.search).get("q");
  return summary(page, [...stems, ...Search._parseQuery(query)[3]], anchor);
};
