// The card on Airflow's home page. Airflow provides React and its own components, so that nothing is bundled here.
const { createElement: element, useEffect, useState } = globalThis.React;
const { Box, Heading, Link, Text } = globalThis.ChakraUI;
const own = new URL(".", import.meta.url); // …/tidemark/static/
const data = new URL("../card.json", own);
const page = (path) => new URL(`plugin/tidemark${new URL("..", own).pathname}${path}`, document.baseURI).href;

globalThis.TidemarkCard = () => {
  const [card, setCard] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    fetch(data, { signal: abort.signal })
      .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`the server answered ${answer.status}`))))
      .then(setCard)
      .catch((error) => {
        if (error.name !== "AbortError") setCard({ title: "The streams' state is not known", problem: error.message, streams: [] });
      });
    return () => abort.abort();
  }, []);

  if (card && !card.title) return null;
  const rows = (card?.streams ?? []).map(({ stream, text }) =>
    element(Text, { key: stream, fontSize: "sm", mt: 1, overflowWrap: "anywhere" },
      element(Link, { href: page(`streams/${encodeURIComponent(stream)}`), color: "fg.info" }, stream), ` ${text}`));
  return element(Box, { as: "section", "aria-label": "Tidemark", borderWidth: 1, borderRadius: "md", p: 4, my: 4 },
    element(Heading, { as: "h2", size: "md" },
      element(Link, { href: page("") }, card ? card.title : "Streams …")),
    card?.problem && element(Text, { color: "fg.error", fontSize: "sm", mt: 1 }, card.problem),
    ...rows,
    card?.more ? element(Text, { color: "fg.muted", fontSize: "sm", mt: 1 }, `and ${card.more} more`) : null);
};
