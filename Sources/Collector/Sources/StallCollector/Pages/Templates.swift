import Mustache

/// Escapes text for HTML, in elements and in quoted attributes. The template engine's own type escapes whole characters.
struct PageText: MustacheContentType {
    static let name = "PAGE"

    func escapeText(_ text: String) -> String {
        text.replacingScalars(["&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;", "'": "&#39;"])
    }
}

/// The pages' markup. `{{…}}` is escaped by ``PageText``, which each whole page names at its start; only numbers that the pages
/// make themselves are inserted unescaped.
enum Templates {
    /// Loading cannot fail: the templates are constant, and tests render each of them.
    static let library: MustacheLibrary = {
        MustacheContentTypes.register(PageText(), named: PageText.name)
        var library = MustacheLibrary()
        for (name, text) in [
            ("layout", layout), ("faults", faults), ("fault", fault), ("report", report), ("flame", flame),
            ("live", live), ("compare", compare), ("timeline", timeline), ("sides", sides),
            ("error", error), ("alert", alert),
        ] {
            if let template = try? MustacheTemplate(string: text) { library.register(template, named: name) }
        }
        return library
    }()

    private static let layout = """
        {{% CONTENT_TYPE:\(PageText.name)}}<!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>{{title}}</title>
        {{$styles}}{{/styles}}
        <link rel="stylesheet" href="/assets/style.css">
        <link rel="icon" href="/assets/icon.svg">
        </head>
        <body>
        <a class="skip" href="#main">To the content</a>
        <header><nav><a href="/">Stalls</a> <a href="/compare">Compare</a> <a href="/timeline">Hosts</a> <a href="/live">Live</a></nav><span class="soft">{{team}}</span></header>
        <main id="main" tabindex="-1">
        {{$content}}{{/content}}
        </main>
        {{$scripts}}{{/scripts}}
        </body>
        </html>
        """

    private static let faults = """
        {{<layout}}{{$content}}
        <h1>Faults</h1>
        <form class="filters" method="get" action="/">
        <label>Since <select name="since">{{#since}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/since}}</select></label>
        {{#until}}<label>Until <input name="until" value="{{until}}" placeholder="now"></label>{{/until}}
        {{#choices}}<label>{{title}} <select name="{{name}}"><option value="">all</option>{{#options}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/options}}</select></label>
        {{/choices}}
        <label>Function <input type="search" name="text" value="{{text}}"></label>
        <label>First <select name="by">{{#order}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/order}}</select></label>
        <button>Show</button>
        </form>
        {{#alerts}}<h2>{{heading}}</h2>
        <ul class="alerts">
        {{#newest}}{{>alert}}{{/newest}}
        </ul>
        {{#more}}<details><summary>{{caption}}</summary>
        <ul class="alerts">
        {{#older}}{{>alert}}{{/older}}
        {{#left}}<li><a href="/api/v1/alerts">{{left}}</a></li>{{/left}}
        </ul>
        </details>{{/more}}
        <h2>Faults found</h2>{{/alerts}}
        <p class="soft">{{summary}} <a href="{{flame}}">Flame graph</a></p>
        {{#nothing}}<p>{{nothing}}</p>{{/nothing}}
        {{#hasRows}}
        <div class="scroll"><table>
        <thead><tr><th>Function</th><th class="number">Blocked</th><th class="number">Stalls</th><th class="number">Worst</th><th class="number">Of the time</th><th>Trend</th><th>Why</th><th>Service</th><th>Hosts</th><th>Releases</th><th>Last</th></tr></thead>
        <tbody>
        {{#rows}}<tr><td><a href="{{link}}"><code>{{culprit}}</code></a><br><span class="soft">{{place}}</span></td><td class="number">{{total}}</td><td class="number">{{count}}</td><td class="number">{{longest}}</td><td class="number">{{share}}</td><td class="trend">{{{trend}}}<span class="soft">{{direction}}</span></td><td>{{verdict}}</td><td>{{service}}</td><td>{{hosts}}</td><td>{{releases}}</td><td class="when">{{last}}</td></tr>
        {{/rows}}
        </tbody></table></div>
        {{/hasRows}}
        {{/content}}{{/layout}}
        """

    private static let alert = """
        {{% CONTENT_TYPE:\(PageText.name)}}<li>{{#link}}<a href="{{link}}">{{text}}</a>{{/link}}{{^link}}{{text}}{{/link}} <span class="soft">since {{since}} UTC</span></li>
        """

    /// The form that chooses what is compared.
    private static let sides = """
        {{% CONTENT_TYPE:\(PageText.name)}}<form class="filters" method="get" action="{{action}}">
        {{#hidden}}<input type="hidden" name="{{name}}" value="{{value}}">{{/hidden}}
        {{#services}}<label>Service <select name="service"><option value="">all</option>{{#options}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/options}}</select></label>{{/services}}
        <fieldset><legend>Before</legend>
        <label>Release <select name="before"><option value="">all</option>{{#before}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/before}}</select></label>
        <label>From <input name="before-since" value="{{beforeSince}}" placeholder="as after"></label>
        <label>To <input name="before-until" value="{{beforeUntil}}" placeholder="as after"></label>
        </fieldset>
        <fieldset><legend>After</legend>
        <label>Release <select name="after"><option value="">all</option>{{#after}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/after}}</select></label>
        <label>From <input name="since" value="{{since}}"></label>
        <label>To <input name="until" value="{{until}}" placeholder="now"></label>
        </fieldset>
        <button>Compare</button>
        </form>
        <p class="soft">A time is a length before now, such as 7d, or a moment, such as 2026-01-31T12:00:00Z.</p>
        """

    private static let compare = """
        {{<layout}}{{$content}}
        <h1>Compare</h1>
        {{#form}}{{>sides}}{{/form}}
        <p class="soft">{{summary}}</p>
        {{#flame}}<p><a href="{{flame}}">Flame graph of the difference</a></p>{{/flame}}
        {{#hasRows}}
        <div class="scroll"><table>
        <thead><tr><th>Function</th><th>Change</th><th class="number">Stalls</th><th class="number">Blocked</th><th class="number">Of the time</th><th>Stacks</th></tr></thead>
        <tbody>
        {{#rows}}<tr><td><a href="{{link}}"><code>{{culprit}}</code></a><br><span class="soft">{{place}}</span></td><td>{{change}}</td><td class="number">{{count}}</td><td class="number">{{total}}</td><td class="number">{{share}}</td><td><a href="{{flame}}">difference</a></td></tr>
        {{/rows}}
        </tbody></table></div>
        {{/hasRows}}
        {{/content}}{{/layout}}
        """

    private static let timeline = """
        {{<layout}}{{$content}}
        <h1>Hosts</h1>
        <form class="filters" method="get" action="/timeline">
        <label>Since <select name="since">{{#since}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/since}}</select></label>
        {{#until}}<label>Until <input name="until" value="{{until}}" placeholder="now"></label>{{/until}}
        <label>Host <select name="host"><option value=""></option>{{#hosts}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/hosts}}</select></label>
        <label>Service <select name="service"><option value="">all</option>{{#services}}<option value="{{value}}"{{#isChosen}} selected{{/isChosen}}>{{name}}</option>{{/services}}</select></label>
        <button>Show</button>
        </form>
        <p class="soft">{{summary}}</p>
        {{#hasLoops}}
        <div class="scroll"><table>
        <thead><tr><th>Watched</th><th>{{range}}</th><th class="number">Reports</th><th class="number">Blocked</th><th>Host</th></tr></thead>
        <tbody>
        {{#loops}}<tr><td>{{label}}<br><span class="soft">{{service}}</span></td><td>{{{picture}}}</td><td class="number">{{count}}</td><td class="number">{{total}}</td><td>{{host}}</td></tr>
        {{/loops}}
        </tbody></table></div>
        <h2>Stalls, the latest first</h2>
        {{#stallsNote}}<p class="soft">{{stallsNote}}</p>{{/stallsNote}}
        <div class="scroll"><table>
        <thead><tr><th>Began (UTC)</th><th class="number">Length</th><th>Function</th><th>Why</th><th>Watched</th><th>Service</th><th>Release</th></tr></thead>
        <tbody>
        {{#stalls}}<tr><td><a href="{{link}}">{{began}}</a></td><td class="number">{{length}}</td><td><code>{{culprit}}</code></td><td>{{verdict}}</td><td>{{label}}</td><td>{{service}}</td><td>{{release}}</td></tr>
        {{/stalls}}
        </tbody></table></div>
        {{/hasLoops}}
        {{/content}}{{/layout}}
        """

    private static let fault = """
        {{<layout}}{{$content}}
        <h1><code>{{culprit}}</code></h1>
        <p>{{headline}}</p>
        <dl>
        {{#facts}}<dt>{{name}}</dt><dd>{{value}}</dd>
        {{/facts}}
        </dl>
        {{#stacks}}<h2>{{title}}</h2>
        <div class="scroll"><table class="tree"><thead><tr><th class="number">Of the time</th><th>Call</th></tr></thead><tbody>
        {{#lines}}<tr><td class="number soft">{{share}}</td><td class="depth{{depth}}{{#isOwn}} own{{/isOwn}}"><code>{{name}}</code> <span class="soft">{{place}}</span></td></tr>
        {{/lines}}
        </tbody></table></div>{{/stacks}}
        <p><a href="{{flameLink}}">Flame graph</a> · <a href="{{jsonLink}}">JSON</a></p>
        <p class="soft">Export of \(QuestionRoutes.exportLimits): {{#exports}}<a href="{{link}}" title="{{summary}}">{{name}}</a> {{/exports}}</p>
        <h2>Days (UTC)</h2>
        {{#daysNote}}<p class="soft">{{daysNote}}</p>{{/daysNote}}
        <div class="scroll"><table><thead><tr><th>Day</th><th class="number">Stalls</th><th class="number">Blocked</th><th></th></tr></thead><tbody>
        {{#days}}<tr><td>{{day}}</td><td class="number">{{count}}</td><td class="number">{{total}}</td><td>{{{bar}}}</td></tr>
        {{/days}}
        </tbody></table></div>
        {{#counts}}<h2>{{title}}</h2>
        {{#note}}<p class="soft">{{note}}</p>{{/note}}
        <div class="scroll"><table><thead><tr><th>{{title}}</th><th class="number">Reports</th><th></th></tr></thead><tbody>
        {{#rows}}<tr><td>{{#link}}<a href="{{link}}">{{name}}</a>{{/link}}{{^link}}{{name}}{{/link}}</td><td class="number">{{count}}</td><td>{{{bar}}}</td></tr>
        {{/rows}}
        </tbody></table></div>{{/counts}}
        <h2>Its stalls, the latest first</h2>
        {{#stallsNote}}<p class="soft">{{stallsNote}}</p>{{/stallsNote}}
        <div class="scroll"><table><thead><tr><th>Began</th><th class="number">Length</th><th>Why</th><th>Watched</th><th>Service</th><th>Host</th></tr></thead><tbody>
        {{#stalls}}<tr><td><a href="{{link}}">{{began}}</a></td><td class="number">{{length}}</td><td>{{verdict}}</td><td>{{label}}</td><td>{{service}}</td><td>{{host}}</td></tr>
        {{/stalls}}
        </tbody></table></div>
        {{/content}}{{/layout}}
        """

    private static let report = """
        {{<layout}}{{$content}}
        <h1><code>{{culprit}}</code></h1>
        <p>{{headline}}</p>
        <dl>
        {{#facts}}<dt>{{name}}</dt><dd>{{value}}</dd>
        {{/facts}}
        </dl>
        <p><a href="{{faultLink}}">Its fault</a> · <a href="{{jsonLink}}">JSON</a></p>
        {{#stacks}}<h2>{{title}}</h2>
        {{#error}}<p>{{error}}</p>{{/error}}
        <ol class="stack">
        {{#frames}}<li{{#isOwn}} class="own"{{/isOwn}}><code>{{name}}</code> <span class="soft">{{place}}</span></li>
        {{/frames}}
        </ol>
        {{/stacks}}
        {{/content}}{{/layout}}
        """

    private static let live = """
        {{<layout}}{{$content}}
        <h1>Stalls as they come</h1>
        <p class="soft" id="state" role="status">Without its script this page shows the latest ones only.</p>
        <div class="scroll"><table>
        <thead><tr><th>Began (UTC)</th><th class="number">Length</th><th>Function</th><th>Why</th><th>Watched</th><th>Service</th><th>Release</th><th>Host</th></tr></thead>
        <tbody id="stalls" data-place="{{place}}" data-feed="{{feed}}">
        {{#rows}}<tr data-id="{{id}}"><td><a href="{{link}}">{{began}}</a></td><td class="number">{{length}}</td><td><code>{{culprit}}</code></td><td>{{verdict}}</td><td>{{label}}</td><td>{{service}}</td><td>{{release}}</td><td>{{host}}</td></tr>
        {{/rows}}
        </tbody></table></div>
        <script src="/assets/live.js"></script>
        {{/content}}{{/layout}}
        """

    private static let flame = """
        {{<layout}}{{$styles}}<link rel="stylesheet" href="/assets/flame.css">{{/styles}}{{$content}}
        <p><a href="{{back}}">{{title}}</a></p>
        <details{{#isCompared}} open{{/isCompared}}><summary>Compare two releases or times</summary>
        {{#form}}{{>sides}}{{/form}}
        </details>
        {{#truncation}}<p>{{truncation}}</p>{{/truncation}}
        {{{markup}}}
        {{/content}}{{$scripts}}<script type="application/json" id="data">{{{data}}}</script>
        <script src="/assets/flame.js"></script>{{/scripts}}{{/layout}}
        """

    private static let error = """
        {{<layout}}{{$content}}
        <h1>{{title}}</h1>
        <p>{{reason}}</p>
        <p>{{advice}}</p>
        <p><a href="/">Back to the faults</a></p>
        <p class="soft">HTTP status {{code}}</p>
        {{/content}}{{/layout}}
        """

    static let icon = """
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><g fill="#e8833a"><rect x="3" y="2" width="4" height="12"/><rect x="9" y="2" width="4" height="12"/></g></svg>
        """

    /// The style of each depth of a tree. An attribute for it would need an exception from the content security policy.
    private static let indentations = (1...20).map { ".depth\($0) { padding-left: \($0)rem; }" }.joined(separator: " ")

    static let style = """
        :root { color-scheme: light dark; --back: #fff; --text: #1d1f23; --soft: #5c6370; --line: #dcdfe4; --own: #b3500c; --bar: #e8833a; --link: #0b57d0; }
        @media (prefers-color-scheme: dark) {
          :root { --back: #16181c; --text: #e6e6e6; --soft: #a0a6ae; --line: #34373d; --own: #f0a060; --bar: #b8601f; --link: #8ab4f8; }
        }
        body { margin: 0; background: var(--back); color: var(--text); font: 14px/1.5 system-ui, sans-serif; }
        header { display: flex; gap: 1rem; align-items: baseline; padding: .7rem 1.5rem; border-bottom: 1px solid var(--line); }
        header a { font-weight: 600; text-decoration: none; margin-right: .8rem; }
        .skip { position: absolute; left: -100rem; }
        .skip:focus { left: 1rem; top: .3rem; background: var(--back); padding: .3rem .6rem; }
        :focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
        main:focus { outline: none; }
        main { padding: 0 1.5rem 3rem; }
        main > p:first-child { margin-top: 1.2rem; }
        h1 { font-size: 1.25rem; margin: 1.2rem 0 .4rem; overflow-wrap: anywhere; }
        h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
        a { color: var(--link); }
        code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
        h1 code { font-size: inherit; }
        .soft { color: var(--soft); }
        .trend { white-space: nowrap; }
        .filters { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; margin: .8rem 0; }
        fieldset { display: flex; flex-wrap: wrap; gap: .6rem 1rem; border: 1px solid var(--line); border-radius: 5px; padding: .3rem .7rem .6rem; margin: 0; }
        fieldset input { width: 10rem; }
        legend { color: var(--soft); font-size: 12px; }
        .filters label { display: grid; color: var(--soft); font-size: 12px; }
        select, input, button { font: inherit; padding: .3rem .5rem; border: 1px solid var(--line); border-radius: 5px; background: var(--back); color: var(--text); max-width: 16rem; }
        .scroll { overflow-x: auto; }
        table { border-collapse: collapse; }
        th, td { text-align: left; padding: .35rem 1.1rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
        th { font-weight: 600; white-space: nowrap; }
        .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
        td:first-child { min-width: 12rem; }
        svg rect { fill: var(--bar); }
        svg { vertical-align: middle; margin-right: .5rem; }
        dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: .8rem 0; max-width: 70rem; }
        dt { color: var(--soft); }
        dd { margin: 0; overflow-wrap: anywhere; }
        .when { white-space: nowrap; }
        .alerts { list-style: none; padding: 0; margin: .4rem 0; }
        .alerts li { border-left: 3px solid var(--bar); padding-left: .7rem; margin: .4rem 0; overflow-wrap: anywhere; }
        .new td:first-child { border-left: 3px solid var(--bar); padding-left: .5rem; }
        .stack { padding-left: 2.5rem; }
        .stack li { overflow-wrap: anywhere; }
        td > code { display: inline-block; min-width: 11rem; }
        .tree td > code { display: inline; }
        .tree td, .tree th { border: 0; padding-top: .1rem; padding-bottom: .1rem; }
        .tree td:first-child { min-width: 0; }
        \(indentations)
        .own code { color: var(--own); font-weight: 600; }
        """
}
