() => {
	const faults = [], name = e => e.outerHTML.slice(0, 90);
	const rgb = colour => (colour.match(/[\d.]+/g) || []).map(Number);
	const luminance = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
		.reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
	const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = rgb(getComputedStyle(e).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c;
		}
		return [255, 255, 255];
	};
	const visible = e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 0;

	// 1.4.3: text has a contrast of 4.5 to 1. The page has none that is large enough for 3 to 1 and needs it.
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (!texts.currentNode.data.trim() || e.matches("script, style, noscript") || !visible(e)) continue;
		let opacity = 1;
		for (let p = e; p; p = p.parentElement) opacity *= getComputedStyle(p).opacity;
		const back = behind(e), front = rgb(getComputedStyle(e).color).map((c, i) => c * opacity + back[i] * (1 - opacity));
		const got = ratio(front, back);
		if (got < 4.5) faults.push(`contrast ${got.toFixed(2)}: ${name(e)}`);
	}
	// 1.4.11: what shows the edge of a field or a button, or the state of a request, has 3 to 1.
	for (const e of document.querySelectorAll("input:not([type=hidden]), button:not(.big)")) {
		if (!visible(e)) continue;
		const got = ratio(rgb(getComputedStyle(e).borderTopColor), behind(e.parentElement));
		if (got < 3) faults.push(`edge ${got.toFixed(2)}: ${name(e)}`);
	}
	for (const e of document.querySelectorAll(".run, .end, .big")) {
		const got = ratio(rgb(getComputedStyle(e).backgroundColor), behind(e.parentElement));
		if (got < 3) faults.push(`bar ${got.toFixed(2)}: ${name(e)}`);
	}
	// 2.5.8: targets have 24 by 24 pixels, but for links within a sentence.
	for (const e of document.querySelectorAll("a, button, input:not([type=hidden])")) {
		const box = e.getBoundingClientRect();
		if (visible(e) && !e.closest("p") && (box.width < 24 || box.height < 24)) faults.push(`target ${box.width}x${box.height}: ${name(e)}`);
	}
	// 1.4.10: nothing has to be scrolled sideways, at 320 pixels too.
	if (document.documentElement.scrollWidth > innerWidth) faults.push(`${document.documentElement.scrollWidth} pixels wide in ${innerWidth}`);
	for (const e of document.querySelectorAll("main *")) {
		if (visible(e) && e.getBoundingClientRect().right > innerWidth + 1) faults.push(`sticks out: ${name(e)}`);
	}
	// 1.3.1, 2.4.6, 4.1.2: one h1, no level left out, names and labels, landmarks, a language, unique ids.
	const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter(visible).map(h => Number(h.tagName[1]));
	if (levels.filter(l => l === 1).length !== 1 || levels[0] !== 1) faults.push(`headings: ${levels}`);
	levels.forEach((l, i) => { if (i && l > levels[i - 1] + 1) faults.push(`headings: ${levels}`); });
	for (const e of document.querySelectorAll("button, a")) if (!e.textContent.trim()) faults.push(`no name: ${name(e)}`);
	for (const e of document.querySelectorAll("input:not([type=hidden])")) if (!e.labels.length) faults.push(`no label: ${name(e)}`);
	for (const e of document.querySelectorAll("section")) {
		const by = e.getAttribute("aria-labelledby");
		if (!by || !document.getElementById(by)) faults.push(`no name: ${name(e)}`);
	}
	for (const tag of ["main", "header", "footer", "title"]) if (document.querySelectorAll(tag).length !== 1) faults.push(`not one ${tag}`);
	if (document.documentElement.lang !== "en") faults.push("no language");
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	if (new Set(ids).size !== ids.length) faults.push(`ids: ${ids}`);
	// 4.1.3: one polite region, and it is not the timeline.
	const live = [...document.querySelectorAll("[role=status], [role=alert], [aria-live]")];
	if (live.length !== 1 || live[0].id !== "verdict" || live[0].getAttribute("role") !== "status") faults.push(`live: ${live.map(name)}`);
	return faults;
}
