extension FlameGraphView {
    /// A page must place it after the elements and the data.
    public static let script = #"""
        "use strict";
        const data = JSON.parse(document.getElementById("data").textContent);
        const element = id => document.getElementById(id);
        // The limits are those above which a shorter unit would be rounded to 1000.
        const time = ns => ns >= 999.95e6 ? (ns / 1e9).toFixed(2) + " s" : ns >= 999.5e3 ? (ns / 1e6).toFixed(1) + " ms" : (ns / 1e3).toFixed(0) + " µs";
        // Weights are nanoseconds of blocked time, or samples.
        const amount = value => data.samples ? value + (value === 1 ? " sample" : " samples") : time(value);
        const share = (part, whole) => whole > 0 ? (part > 0 && part < whole / 2000 ? "<0.1" : (100 * part / whole).toFixed(1)) + " %" : "–";
        // Boxes of a comparison have the time of the earlier set too. They are as wide as both together, and coloured by the change.
        const sides = data.sides, weight = node => node.t + (node.b || 0);
        const sum = (nodes, key) => nodes.reduce((all, node) => all + (node[key] || 0), 0);
        // The boxes from the outermost one to the enlarged one; in the sandwich view also the number of its function; the call that the
        // user chose last.
        let shown = [data.graph], middle = null, chosen = null, words = "";

        function matches(text) { return words !== "" && text.toLowerCase().includes(words); }
        function isHit(node) { return matches(node.n) || (node.p !== undefined && matches(node.p)); }

        function amounts(after, before) { return sides ? time(before) + " → " + time(after) : amount(after); }

        function describe(node) {
          const rest = sides ? (sides.rate ? " per hour watched" : "") : ", " + share(node.t, data.graph.t) + " of all";
          return node.n + (node.p ? "\n" + node.p : "") + "\n" + amounts(node.t, node.b) + rest;
        }

        function tell(node) { element("told").textContent = describe(node); }

        // From blue (gone) over grey (unchanged) to red (new).
        function shade(node) {
          const change = weight(node) > 0 ? (node.t - node.b) / weight(node) : 0;
          return `hsl(${change > 0 ? 8 : 215} ${Math.round(85 * Math.abs(change))}% ${Math.round(78 - 18 * Math.abs(change))}%)`;
        }

        // The calls of a function in all places, each with its callers, the innermost first. Of a recursion only the outermost call counts:
        // its time includes the others'.
        function calls(number, node = data.graph, callers = []) {
          if (node.f === number) return [{ node, callers }];
          const above = node === data.graph ? [] : [node, ...callers];
          return (node.c || []).flatMap(child => calls(number, child, above));
        }

        // Boxes of one function become one, and so do those below them.
        function merged(nodes) {
          const groups = new Map();
          for (const node of nodes) groups.has(node.f) ? groups.get(node.f).push(node) : groups.set(node.f, [node]);
          return [...groups.values()].map(same => ({
            ...same[0], t: sum(same, "t"), b: sum(same, "b"), c: merged(same.flatMap(node => node.c || []))
          })).sort((one, other) => weight(other) - weight(one));
        }

        // A function with its callees below it, and its callers as if they were called by it.
        function sandwich(number) {
          const found = calls(number);
          const callers = found.map(({ node, callers }) =>
            callers.reduceRight((outer, call) => ({ ...call, t: node.t, b: node.b, c: outer ? [outer] : [] }), null));
          const [centre] = merged(found.map(one => one.node));
          return { centre, callers: { ...centre, c: merged(callers.filter(one => one !== null)) } };
        }

        // What is drawn: a node, its row, and its place from 0 to 1.
        let boxes = [];

        function place(node, path, left, width, row, step) {
          if (width < 0.0004) return;
          boxes.push({ node, path, left, width, row });
          let x = left;
          for (const child of node.c || []) {
            const part = weight(node) > 0 ? width * weight(child) / weight(node) : 0;
            place(child, path.concat([child]), x, part, row + step, step);
            x += part;
          }
        }

        function button(box, topmost) {
          const { node } = box, item = document.createElement("button");
          item.type = "button";
          item.className = "box" + (node.o ? " own" : "") + (box.isAbove ? " above" : "") + (box.isCentre ? " centre" : "");
          if (isHit(node)) item.classList.add("hit");
          item.style.left = 100 * box.left + "%";
          item.style.width = 100 * box.width + "%";
          item.style.top = 18 * (box.row - topmost) + "px";
          item.textContent = node.n;
          item.title = describe(node);
          // The graph is one stop of the tab key.
          item.tabIndex = -1;
          if (sides && !item.classList.contains("hit")) { item.style.background = shade(node); item.style.color = "#222"; }
          item.addEventListener("click", () => open(box));
          item.addEventListener("mouseenter", () => tell(node));
          box.item = item;
          return item;
        }

        function choose(box) {
          for (const one of boxes) one.item.tabIndex = one === box ? 0 : -1;
          chosen = box.node;
          tell(chosen);
          element("sandwich").disabled = middle === null && chosen.f === undefined;
        }

        function open(box) {
          if (middle === null) shown = box.path;
          else middle = box.node.f;
          draw();
          first().item.focus();
        }

        // The box from which the others follow.
        function first() { return boxes.find(one => one.isCentre) || boxes.find(one => one.node === shown[shown.length - 1]); }

        function draw() {
          boxes = [];
          if (middle === null) {
            const [above, last] = [shown.slice(0, -1), shown.length - 1];
            above.forEach((node, row) => boxes.push({ node, path: shown.slice(0, row + 1), left: 0, width: 1, row, isAbove: true }));
            place(shown[last], shown, 0, 1, last, 1);
          } else {
            const { centre, callers } = sandwich(middle);
            place(callers, [], 0, 1, 0, -1);
            boxes.shift();
            boxes.sort((one, other) => one.row - other.row || one.left - other.left);
            const count = boxes.length;
            place(centre, [], 0, 1, 0, 1);
            boxes[count].isCentre = true;
          }
          // Of so many values, Math.min would overflow the stack.
          const [topmost, lowest] = boxes.reduce(([low, high], { row }) => [Math.min(low, row), Math.max(high, row)], [0, 0]);
          const graph = element("graph");
          graph.replaceChildren(...boxes.map(box => button(box, topmost)));
          graph.style.height = 18 * (lowest - topmost + 1) + "px";
          choose(first());
          element("sandwich").setAttribute("aria-pressed", String(middle !== null));
          const found = node => isHit(node) ? weight(node) : (node.c || []).reduce((all, child) => all + found(child), 0);
          element("found").textContent = words === "" ? "" : share(found(data.graph), weight(data.graph)) + (data.samples ? " of the samples" : " of the time") + " is in matching calls";
        }

        // The box of the next row at the same place, or the next one in the same row.
        function neighbour(box, key) {
          const step = { ArrowUp: -1, ArrowDown: 1 }[key];
          const row = boxes.filter(one => one.row === box.row + (step || 0)).sort((one, other) => one.left - other.left);
          if (key === "ArrowLeft") return row.filter(one => one.left < box.left).pop();
          if (key === "ArrowRight") return row.find(one => one.left > box.left);
          // Sums of widths are rounded.
          const start = box.left + Math.min(box.width / 2, 1e-6);
          return row.find(one => one.left <= start && start < one.left + one.width) || row.find(one => one.left >= box.left && one.left < box.left + box.width);
        }

        element("graph").addEventListener("keydown", event => {
          const box = boxes.find(one => one.item === event.target);
          if (!box || !["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].includes(event.key)) return;
          event.preventDefault();
          const next = neighbour(box, event.key);
          if (!next) return;
          choose(next);
          next.item.focus();
        });

        // A comparison's cells are texts. A column of numbers or lengths is sorted by value, "2 → 6.5" by the later side.
        const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, m: 6e10, h: 3.6e12, d: 8.64e13 };
        function value(cell) {
          const later = cell.slice(cell.lastIndexOf("→") + 1).trim();
          const parts = [...later.matchAll(/([\d.]+)(ns|µs|ms|s|m|h|d)?/g)];
          if (later === "–") return -1;
          return parts.map(part => part[0]).join("") === later ? parts.reduce((sum, part) => sum + part[1] * (units[part[2]] || 1), 0) : NaN;
        }

        // A table in an element, sorted by the column whose heading is pressed. `columns` are keys of the rows with their titles, `fill` gives a
        // cell its content. Returns a function that lists the rows that the search finds.
        function table(id, columns, all, order, most, fill) {
          const part = selector => element(id).querySelector(selector);
          let falling = order !== null;
          function list() {
            const rows = all.filter(row => words === "" || columns.some(([key]) => matches(String(row[key] ?? ""))));
            const isNumber = order !== null && rows.every(row => typeof row[order] === "string" && !isNaN(value(row[order])));
            const key = row => isNumber ? value(row[order]) : row[order] ?? "";
            if (order !== null) rows.sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) * (falling ? -1 : 1));
            part("tbody").replaceChildren(...rows.slice(0, most).map(item => {
              const row = document.createElement("tr");
              for (const [key] of columns) fill(row.insertCell(), item, key);
              return row;
            }));
            for (const [index, [key]] of columns.entries())
              part("thead").rows[0].cells[index].ariaSort = key !== order ? "none" : falling ? "descending" : "ascending";
            const left = rows.length - most;
            part("[role=status]").textContent = left > 0 ? left + " more, which this table does not show: search for them, or sort by another column." : "";
          }
          const head = document.createElement("tr");
          for (const [key, name] of columns) {
            const cell = document.createElement("th"), button = document.createElement("button");
            button.type = "button";
            button.textContent = name;
            button.addEventListener("click", () => { falling = order === key ? !falling : true; order = key; list(); });
            cell.append(button);
            head.append(cell);
          }
          part("thead").append(head);
          list();
          return list;
        }

        // Each function with its time in all places, and the part of it that is in no call that it made.
        function functions() {
          const found = new Map();
          function count(node, open) {
            if (!found.has(node.f)) found.set(node.f, { n: node.n, p: node.p || "", f: node.f, t: 0, b: 0, own: 0, ownBefore: 0 });
            const one = found.get(node.f), inner = node.c || [];
            one.own += node.t - sum(inner, "t");
            one.ownBefore += (node.b || 0) - sum(inner, "b");
            const isOutermost = !open.has(node.f);
            if (isOutermost) { one.t += node.t; one.b += node.b || 0; open.add(node.f); }
            for (const child of inner) count(child, open);
            if (isOutermost) open.delete(node.f);
          }
          // Below the boxes of the watched loops or sampled threads.
          for (const watched of data.graph.c || []) for (const node of watched.c || []) count(node, new Set());
          return [...found.values()];
        }

        function fillFunction(cell, one, key) {
          if (key !== "n") {
            cell.textContent = key === "p" ? one.p : key === "t" ? amounts(one.t, one.b) : amounts(one.own, one.ownBefore);
            cell.className = key === "p" ? "" : "number";
            return;
          }
          const choice = document.createElement("button");
          choice.type = "button";
          choice.className = "function";
          choice.textContent = one.n;
          choice.addEventListener("click", () => { middle = one.f; draw(); first().item.focus(); });
          cell.append(choice);
        }

        function fillStall(cell, stall, key) {
          cell.textContent = key === "ns" ? time(stall.ns) : key === "id" ? stall.id.slice(0, 10)
        : key === "started" ? stall.started.slice(0, 23).replace("T", " ") : stall[key];
          if (key === "ns") cell.className = "number";
        }

        const columns = data.samples ? [] : sides ? sides.columns.map((name, index) => [index, name]) : [["started", "Started"], ["ns", "Length"], ["kind", "Kind"], ["verdict", "Why"], ["service", "Service"], ["label", "Watched"], ["culprit", "Culprit"], ["cause", "Cause"], ["id", "Report"]];
        const lists = [
          table("functions", [["n", "Function"], ["p", "Place"], ["own", data.samples ? "Itself" : "Own time"], ["t", "Total"]], functions(), "own", 200, fillFunction),
          table("rows", columns, data.stalls, sides ? null : "ns", 1000, fillStall),
        ];
        if (sides) document.querySelector("h1").textContent = document.title = sides.before + " → " + sides.after;
        if (data.samples) document.querySelector("h1").textContent = document.title = data.samples.title;
        element("summary").textContent = data.samples ? data.samples.summary : sides ? sides.summary : data.stalls.length + (data.stalls.length === 1 ? " stall, " : " stalls, ") + time(data.graph.t) + " together. Orange is the server's own code. Times are UTC.";
        element("search").addEventListener("input", event => { words = event.target.value.trim().toLowerCase(); draw(); for (const list of lists) list(); });
        element("reset").addEventListener("click", () => { shown = [data.graph]; middle = null; draw(); });
        element("sandwich").addEventListener("click", () => { middle = middle === null ? chosen.f : null; draw(); });
        draw();

        """#
}
