"use strict";
document.documentElement.classList.add("js");
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);
const euros = cents => "€" + (cents / 100).toFixed(cents % 100 ? 2 : 0);
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

// What the server says, at each change of a request.
let records = [], clock = 0;
const waiting = new Set(), charged = r => r.RunEnd > 0, running = r => r.RunStart && !r.End, ended = r => r.End > 0;
new EventSource("/events").addEventListener("shop", event => {
	const news = JSON.parse(event.data);
	records = news.Records || [];
	clock = news.Now - performance.now();
	document.body.dataset.events = "on";
	show();
	for (const check of waiting) check();
});
// until resolves when the records fulfil the condition. It gives up after a while: the show must go on.
const until = condition => new Promise(resolve => {
	const stop = () => { waiting.delete(check); clearTimeout(late); resolve(); };
	const check = () => { if (condition()) stop(); };
	const late = setTimeout(stop, 15000);
	waiting.add(check);
	check();
});

// What a request came to, in words.
function story(r, before) {
	const again = before.some(b => b.RunStart), lost = r.Lost ? ", but the client was gone" : r.Status === 409 ? ", but Redis lost the key" : "";
	if (running(r)) return again ? ["bad", "charging again"] : ["run", "charging"];
	if (!ended(r)) return again ? ["wait", "waiting for the first"] : ["run", "sent"];
	if (r.RunStart) return [again ? "bad" : "run", (again ? "charged again" : "charged") + lost + " · " + r.Status];
	if (r.Status < 400) return ["good", (r.End - r.Start > 100 ? "waited, got the same answer" : "got the same answer again") + " · " + r.Status];
	return ["wait", {409: "refused: the first still runs · 409", 422: "refused: not the same order · 422"}[r.Status] || "refused · " + r.Status];
}
function row(r, before, from, axis) {
	const li = document.createElement("li"), now = performance.now() + clock;
	const [kind, what] = story(r, before);
	li.dataset.kind = kind;
	li.dataset.state = ended(r) ? "done" : "sent";
	if (!before.length) li.className = "first";
	li.innerHTML = '<div class="line"><span class="who"></span> <span class="what"></span></div><span class="track" aria-hidden="true"></span>';
	one(".who", li).textContent = `Click ${before.length + 1}${r.Quantity > 1 ? ` · ${r.Quantity} pieces` : ""}${r.Instance === "2" ? " · instance 2" : ""}`;
	one(".what", li).textContent = what;
	const bar = (name, start, end) => {
		const span = one(".track", li).appendChild(document.createElement("span"));
		span.className = "bar " + name;
		span.style.left = 100 * Math.min(.985, (start - from) / axis) + "%";
		span.style.width = 100 * Math.min(end - start, axis - (start - from)) / axis + "%";
	};
	const end = r.End || now;
	if (r.RunStart) bar("run", r.RunStart, r.RunEnd || end);
	else bar("wait", r.Start, end);
	if (kind === "good") bar("end", end, end);
	return li;
}
// total returns what a shop has sold, and what that was worth.
function total(lane) {
	const sold = records.filter(r => r.Lane === lane && charged(r));
	return {orders: sold.length, cents: sold.reduce((sum, r) => sum + 4900 * r.Quantity, 0)};
}
function show() {
	const wishes = [...new Set(records.map(r => r.Key))]; // requests with one key are one wish
	for (const card of all("[data-lane]")) {
		one(".requests", card).replaceChildren(...wishes.slice(-2).reverse().flatMap(wish => {
			const both = records.filter(r => r.Key === wish), group = both.filter(r => r.Lane === card.dataset.lane);
			const from = Math.min(...both.map(r => r.Start)), now = performance.now() + clock;
			const axis = Math.max(2200, ...both.map(r => (r.End || now) - from + 60));
			return group.map((r, i) => row(r, group.slice(0, i), from, axis));
		}));
		const {orders, cents} = total(card.dataset.lane), over = orders - wishes.length;
		one(".orders", card).textContent = orders;
		one(".euros", card).textContent = euros(cents);
		const kind = !orders ? "" : over > 0 ? "bad" : "good";
		card.dataset.kind = one(".chip", card).dataset.kind = kind;
		one(".chip", card).textContent = !orders ? "no orders yet" : over > 0 ? `${over} too many` : "exactly right";
	}
	if (!calm && !records.every(ended)) soon();
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
// both is true when the test is true of so many requests of the latest experiment to each shop.
let latest = "";
const both = (test, n = 1) => lanes.every(lane => records.filter(r => r.Key === latest && r.Lane === lane && test(r)).length === n);
const tries = {
	double: {name: "Double click", async run(key) {
		const first = click(key);
		await new Promise(resolve => setTimeout(resolve, 100));
		await Promise.all([first, click(key)]);
	}, line: () => once(curl())},
	lose: {name: "Lost response", async run(key) {
		const gone = new AbortController(), first = click(key, {signal: gone.signal});
		await until(() => both(r => r.RunStart));
		gone.abort();
		await first;
		await until(() => both(ended));
		await click(key);
	}, line: () => curl("-m 0.5 ") + "; sleep 2\n" + curl()},
	instances: {name: "Two instances", run: key => Promise.all([1, 2].map(i => click(key, {headers: {"X-Instance": i}}))),
		line: () => curl("-H 'X-Instance: 1' ") + " &\n" + curl("-H 'X-Instance: 2' ") + "; wait"},
	hasty: {name: "No waiting", run: key => Promise.all([0, 1].map(() => click(key, {headers: {Prefer: "wait=0"}}))), line: () => once(curl("-H 'Prefer: wait=0' "))},
	amount: {name: "Another amount", run: async key => { await click(key); await click(key, {quantity: 5}); }, line: () => curl() + "\n" + curl("", 5)},
	empty: {name: "Empty Redis", async run(key) {
		const first = click(key);
		await until(() => both(r => r.RunStart));
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
	const before = lanes.map(total);
	latest = crypto.randomUUID();
	one("#verdict").textContent = "";
	await tries[name].run(latest);
	await until(() => both(ended, 2));
	const [left, right] = lanes.map(total).map(({orders, cents}, i) => {
		const n = orders - before[i].orders;
		return `charged ${n === 1 ? "once" : n === 2 ? "twice" : n + " times"} (${euros(cents - before[i].cents)})`;
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
