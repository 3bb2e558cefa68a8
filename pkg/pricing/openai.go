package pricing

// openai has the models of OpenAI. From gpt-5.6 on cache writes are billed.
var openai = []entry{
	{"gpt-5.6-luna", []string{"gpt-5.6-luna", "gpt-5-6-luna"}, []row{
		{rates: rates{1000, 6000, 100, 1250, 0}, over: 272_000, above: rates{2000, 9000, 200, 2500, 0}},
		{from: "2026-07-30", rates: rates{200, 1200, 20, 250, 0}, over: 272_000, above: rates{400, 1800, 40, 500, 0}},
	}},
	{"gpt-5.6-terra", []string{"gpt-5.6-terra", "gpt-5-6-terra"}, []row{
		{rates: rates{2500, 15000, 250, 3125, 0}, over: 272_000, above: rates{5000, 22500, 500, 6250, 0}},
		{from: "2026-07-30", rates: rates{2000, 12000, 200, 2500, 0}, over: 272_000, above: rates{4000, 18000, 400, 5000, 0}},
	}},
	{"gpt-5.6-sol", []string{"gpt-5.6-sol", "gpt-5-6-sol", "gpt-5.6", "gpt-5-6"}, []row{
		{rates: rates{5000, 30000, 500, 6250, 0}, over: 272_000, above: rates{10000, 45000, 1000, 12500, 0}},
	}},
	{"gpt-5.5-pro", []string{"gpt-5.5-pro", "gpt-5-5-pro"}, []row{{rates: rates{input: 30000, output: 180000, read: 3000}, over: 272_000, above: rates{input: 60000, output: 270000, read: 6000}}}},
	{"gpt-5.5", []string{"gpt-5.5", "gpt-5-5", "gpt-5.5-chat", "gpt-5-5-chat", "gpt-5.5-codex", "gpt-5-5-codex"}, []row{
		{rates: rates{input: 5000, output: 30000, read: 500}, over: 272_000, above: rates{input: 10000, output: 45000, read: 1000}},
	}},
	{"gpt-5.4-pro", []string{"gpt-5.4-pro", "gpt-5-4-pro"}, []row{{rates: rates{input: 30000, output: 180000, read: 3000}, over: 272_000, above: rates{input: 60000, output: 270000, read: 6000}}}},
	{"gpt-5.4-mini", []string{"gpt-5.4-mini", "gpt-5-4-mini"}, []row{{rates: rates{input: 750, output: 4500, read: 75}}}},
	{"gpt-5.4-nano", []string{"gpt-5.4-nano", "gpt-5-4-nano"}, []row{{rates: rates{input: 200, output: 1250, read: 20}}}},
	{"gpt-5.4", []string{"gpt-5.4", "gpt-5-4"}, []row{{rates: rates{input: 2500, output: 15000, read: 250}, over: 272_000, above: rates{input: 5000, output: 22500, read: 500}}}},
	{"gpt-5.3", []string{"gpt-5.3", "gpt-5-3", "gpt-5.3-chat", "gpt-5-3-chat", "gpt-5.3-codex", "gpt-5-3-codex"}, []row{{rates: gpt52}}},
	{"gpt-5.2-pro", []string{"gpt-5.2-pro", "gpt-5-2-pro"}, []row{{rates: rates{input: 21000, output: 168000}}}},
	{"gpt-5.2", []string{"gpt-5.2", "gpt-5-2", "gpt-5.2-chat", "gpt-5-2-chat", "gpt-5.2-codex", "gpt-5-2-codex"}, []row{{rates: gpt52}}},
	{"gpt-5.1-codex-mini", []string{"gpt-5.1-codex-mini", "gpt-5-1-codex-mini", "gpt-5.1-mini", "gpt-5-1-mini"}, []row{{rates: gpt5Mini}}},
	{"gpt-5.1", []string{"gpt-5.1", "gpt-5-1", "gpt-5.1-chat", "gpt-5-1-chat", "gpt-5.1-codex", "gpt-5-1-codex", "gpt-5.1-codex-max", "gpt-5-1-codex-max"}, []row{{rates: gpt5}}},
	{"gpt-5-pro", []string{"gpt-5-pro"}, []row{{rates: rates{input: 15000, output: 120000}}}},
	{"gpt-5-mini", []string{"gpt-5-mini"}, []row{{rates: gpt5Mini}}},
	{"gpt-5-nano", []string{"gpt-5-nano"}, []row{{rates: rates{input: 50, output: 400, read: 5}}}},
	{"gpt-5", []string{"gpt-5", "gpt-5-chat", "gpt-5-codex"}, []row{{rates: gpt5}}},
	{"gpt-4.1-mini", []string{"gpt-4.1-mini"}, []row{{rates: rates{input: 400, output: 1600, read: 100}}}},
	{"gpt-4.1-nano", []string{"gpt-4.1-nano"}, []row{{rates: rates{input: 100, output: 400, read: 25}}}},
	{"gpt-4.1", []string{"gpt-4.1"}, []row{{rates: rates{input: 2000, output: 8000, read: 500}}}},
	{"gpt-4o-mini", []string{"gpt-4o-mini", "gpt-4o-mini-search-preview"}, []row{{rates: rates{input: 150, output: 600, read: 75}}}},
	{"gpt-4o", []string{"gpt-4o"}, []row{{rates: rates{input: 2500, output: 10000, read: 1250}}}},
	{"o3-pro", []string{"o3-pro"}, []row{{rates: rates{input: 20000, output: 80000}}}},
	{"o3-mini", []string{"o3-mini", "o3-mini-high"}, []row{{rates: rates{input: 1100, output: 4400, read: 550}}}},
	{"o3", []string{"o3"}, []row{
		{rates: rates{input: 10000, output: 40000, read: 500}},
		{from: "2025-06-10", rates: rates{input: 2000, output: 8000, read: 500}},
	}},
	{"o4-mini", []string{"o4-mini", "o4-mini-high"}, []row{{rates: rates{input: 1100, output: 4400, read: 275}}}},
	{"codex-mini", []string{"codex-mini"}, []row{{rates: rates{input: 1500, output: 6000, read: 375}}}},
	{"computer-use", []string{"computer-use", "computer-use-preview"}, []row{{rates: rates{input: 3000, output: 12000}}}},
}

var (
	gpt5     = rates{input: 1250, output: 10000, read: 125}
	gpt5Mini = rates{input: 250, output: 2000, read: 25}
	gpt52    = rates{input: 1750, output: 14000, read: 175}
)
