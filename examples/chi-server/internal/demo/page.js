"use strict";
document.documentElement.classList.add("js");
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);
const euros = cents => "€" + (cents / 100).toFixed(cents % 100 ? 2 : 0);
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

// What the server says: one message for each change of a request.
let shop = {wishes: 0, totals: {}}, clock = 0;
const records = new Map(), waiting = new Set();
const events = new EventSource("/events");
events.addEventListener("shop", event => {
	const news = JSON.parse(event.data);
	if (news.all) records.clear();
	for (const r of news.records) records.set(r.id, r);
	shop = news;
	clock = news.now - performance.now();
	document.body.dataset.events = "on";
	show();
	for (const check of waiting) check();
});
// until resolves when the records of a key fulfil the condition. It gives up after a while: the show must go on.
const until = condition => new Promise(resolve => {
	const stop = () => { waiting.delete(check); clearTimeout(late); resolve(); };
	const check = () => { if (condition([...records.values()])) stop(); };
	const late = setTimeout(stop, 15000);
	waiting.add(check);
	check();
});

// What a request came to, in words.
function story(r, before) {
	if (r.state === "emptied") return ["wait", "Redis is empty now"];
	const again = before.some(b => b.runStart), lost = r.lost ? ", but the client was gone" : r.outcome === "lease-lost" ? ", but Redis lost the key" : "";
	if (r.state === "running") return again ? ["bad", "charging again"] : ["run", "charging"];
	if (r.state === "sent") return again ? ["wait", "waiting for the first"] : ["run", "sent"];
	const waited = r.took > 100 && !r.runStart;
	if (r.outcome === "replayed" || waited && r.status < 400)
		return ["good", (waited ? "waited, got the same answer" : "got the same answer again") + " · " + r.status];
	if (r.outcome === "in-flight") return ["wait", "refused: the first still runs · 409"];
	if (r.outcome === "reused") return ["wait", "refused: not the same order · 422"];
	if (r.runStart && r.run) return [again ? "bad" : "run", (again ? "charged again" : "charged") + lost + " · " + r.status];
	return ["wait", r.status + " " + r.outcome];
}
function row(r, before, from, axis) {
	const li = document.createElement("li"), now = performance.now() + clock;
	const [kind, what] = story(r, before);
	li.dataset.kind = kind;
	li.dataset.state = r.state;
	if (!before.length) li.className = "first";
	const who = r.state === "emptied" ? "" : `Click ${r.try}${r.quantity > 1 ? ` · ${r.quantity} pieces` : ""}${r.instance > 1 ? " · instance 2" : ""}`;
	li.innerHTML = '<div class="line"><span class="who"></span> <span class="what"></span></div><span class="track" aria-hidden="true"></span>';
	one(".who", li).textContent = who;
	one(".what", li).textContent = what;
	const bar = (name, start, length) => {
		const span = one(".track", li).appendChild(document.createElement("span"));
		span.className = "bar " + name;
		span.style.left = 100 * Math.min(.985, (start - from) / axis) + "%";
		span.style.width = 100 * Math.min(length, axis - (start - from)) / axis + "%";
	};
	const done = r.state === "done", end = done ? r.start + r.took : now;
	if (r.state === "emptied") bar("wait", r.start, 0);
	else if (r.runStart) bar("run", r.runStart, r.run || end - r.runStart);
	else bar("wait", r.start, end - r.start);
	if (done && kind === "good") bar("end", end, 0);
	return li;
}
function show() {
	const list = [...records.values()].sort((a, b) => a.id - b.id);
	for (const card of all("[data-lane]")) {
		const mine = list.filter(r => r.lane === card.dataset.lane), recent = [...new Set(mine.map(r => r.wish))].slice(-2).reverse();
		one(".requests", card).replaceChildren(...recent.flatMap(wish => {
			const group = mine.filter(r => r.wish === wish), both = list.filter(r => r.wish === wish);
			const from = Math.min(...both.map(r => r.start));
			const axis = Math.max(2200, ...both.map(r => (r.state === "done" ? r.start + r.took : performance.now() + clock) - from + 60));
			return group.map((r, i) => row(r, group.slice(0, i), from, axis));
		}));
		if (card.dataset.lane === "form") continue;
		const {orders, cents} = shop.totals[card.dataset.lane] || {orders: 0, cents: 0}, over = orders - shop.wishes;
		one(".orders", card).textContent = orders;
		one(".euros", card).textContent = euros(cents);
		const kind = !orders ? "" : over > 0 ? "bad" : "good";
		card.dataset.kind = one(".chip", card).dataset.kind = kind;
		one(".chip", card).textContent = !orders ? "no orders yet" : over > 0 ? `${over} too many` : "exactly right";
	}
	if (!calm && list.some(r => r.state === "sent" || r.state === "running")) requestAnimationFrame(soon);
}
let planned = false;
function soon() {
	if (planned) return;
	planned = true;
	requestAnimationFrame(() => { planned = false; show(); });
}

// What the buttons do, here and in a shell.
const lanes = ["unprotected", "protected"];
function click(key, {quantity = 1, headers = {}, signal} = {}) {
	return Promise.allSettled(lanes.map(lane => fetch(`/demo/${lane}/orders`, {
		method: "POST", signal, headers: {"Content-Type": "application/json", "Idempotency-Key": key, ...headers}, body: JSON.stringify({quantity}),
	}).then(response => response.text())));
}
const visitor = document.body.dataset.visitor;
const curl = (options = "", quantity = 1) => `curl -s ${options}\\
  -b visitor=${visitor} \\
  -H "Idempotency-Key: $key" --json '{"quantity":${quantity}}' \\
  '${location.origin}/demo/{unprotected,protected}/orders'`;
const once = line => line + " &\n" + line + "; wait";
const every = (list, test) => lanes.every(lane => list.some(r => r.lane === lane && test(r)));
const tries = {
	double: {name: "Double click", async run(key) {
		const first = click(key);
		await new Promise(resolve => setTimeout(resolve, 100));
		await Promise.all([first, click(key)]);
	}, line: () => once(curl())},
	lose: {name: "Lost response", async run(key, mine) {
		const gone = new AbortController(), first = click(key, {signal: gone.signal});
		await until(list => every(mine(list), r => r.state === "running"));
		gone.abort();
		await first;
		await until(list => every(mine(list), r => r.state === "done"));
		await click(key);
	}, line: () => curl("-m 0.5 ") + "; sleep 2\n" + curl()},
	instances: {name: "Two instances", run: key => Promise.all([1, 2].map(i => click(key, {headers: {"X-Instance": i}}))),
		line: () => curl("-H 'X-Instance: 1' ") + " &\n" + curl("-H 'X-Instance: 2' ") + "; wait"},
	hasty: {name: "No waiting", run: key => Promise.all([0, 1].map(() => click(key, {headers: {Prefer: "wait=0"}}))), line: () => once(curl("-H 'Prefer: wait=0' "))},
	amount: {name: "Another amount", run: async key => { await click(key); await click(key, {quantity: 5}); }, line: () => curl() + "\n" + curl("", 5)},
	empty: {name: "Empty Redis", async run(key, mine) {
		const first = click(key);
		await until(list => every(mine(list), r => r.state === "running"));
		await fetch("/demo/redis/empty", {method: "POST"});
		await Promise.all([first, click(key)]);
	}, line: () => `${curl()}\ncurl -sX POST -b visitor=${visitor} \\\n  ${location.origin}/demo/redis/empty\n${curl()}`},
};
function explain(name) {
	one("#which").textContent = tries[name].name + ":";
	one("#curl").textContent = "key=demo-$(date +%s)\n" + tries[name].line();
}
let busy = false;
async function run(name) {
	if (busy) return;
	busy = true;
	all("[data-try]").forEach(b => b.setAttribute("aria-disabled", "true"));
	explain(name);
	const last = Math.max(0, ...records.keys()), before = structuredClone(shop.totals), mine = list => list.filter(r => r.id > last && r.lane !== "form");
	one("#verdict").textContent = "";
	await tries[name].run(crypto.randomUUID(), mine);
	await until(list => mine(list).every(r => r.state !== "sent" && r.state !== "running"));
	const [left, right] = lanes.map(lane => {
		const t = shop.totals[lane] || {orders: 0, cents: 0}, b = before[lane] || {orders: 0, cents: 0}, n = t.orders - b.orders;
		return `charged ${n === 1 ? "once" : n === 2 ? "twice" : n + " times"} (${euros(t.cents - b.cents)})`;
	});
	one("#verdict").textContent = `${tries[name].name}: without onceguard ${left}, with onceguard ${right}.`;
	document.body.dataset.done = name;
	all("[data-try]").forEach(b => b.removeAttribute("aria-disabled"));
	busy = false;
}
all("[data-try]").forEach(b => b.addEventListener("click", () => run(b.dataset.try)));
one("#over").addEventListener("click", async () => {
	await fetch("/demo/start-over", {method: "POST"});
	one("#verdict").textContent = "Both shops are empty.";
});
one("#copy").addEventListener("click", async () => {
	try {
		await navigator.clipboard.writeText(one("#curl").textContent);
		one("#verdict").textContent = one("#copy").textContent = "Copied";
	} catch { getSelection().selectAllChildren(one("#curl")); }
});
explain("double");
show();
