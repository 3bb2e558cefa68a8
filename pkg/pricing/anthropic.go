package pricing

// anthropic has the models of Anthropic. Writes that live an hour cost twice, those
// of five minutes 1.25 times the plain input.
var anthropic = []entry{
	{"claude-opus-5-5", []string{"claude-opus-5-5", "claude-opus-5.5"}, []row{{rates: rates{4000, 20000, 200, 5000, 8000}}}},
	{"claude-opus-5", []string{"claude-opus-5", "claude-opus-5-0", "claude-opus-5.0", "claude-5-opus"}, []row{{rates: opus}}},
	{"claude-opus-4-8", []string{"claude-opus-4-8", "claude-opus-4.8", "claude-4-8-opus", "claude-4.8-opus"}, []row{{rates: opus}}},
	{"claude-opus-4-7", []string{"claude-opus-4-7", "claude-opus-4.7", "claude-4-7-opus", "claude-4.7-opus"}, []row{{rates: opus}}},
	{"claude-opus-4-6", []string{"claude-opus-4-6", "claude-opus-4.6", "claude-4-6-opus", "claude-4.6-opus"}, []row{
		{rates: opus, over: 200_000, above: rates{10000, 37500, 1000, 12500, 20000}},
		{from: "2026-03-13", rates: opus},
	}},
	{"claude-opus-4-5", []string{"claude-opus-4-5", "claude-opus-4.5", "claude-4-5-opus", "claude-4.5-opus"}, []row{{rates: opus}}},
	{"claude-opus-4-1", []string{"claude-opus-4-1", "claude-opus-4.1"}, []row{{rates: opus4}}},
	{"claude-opus-4-0", []string{"claude-opus-4", "claude-opus-4-0", "claude-4-opus"}, []row{{rates: opus4}}},

	{"claude-fable-5-1", []string{"claude-fable-5-1", "claude-fable-5.1"}, []row{{rates: rates{10000, 50000, 250, 12500, 20000}}}},
	{"claude-fable-5", []string{"claude-fable-5"}, []row{{rates: rates{10000, 50000, 1000, 12500, 20000}}}},

	{"claude-sonnet-5-5", []string{"claude-sonnet-5-5", "claude-sonnet-5.5"}, []row{
		{rates: rates{2000, 10000, 200, 2500, 4000}},
		{from: "2026-10-07", rates: rates{2000, 10000, 100, 2500, 4000}},
	}},
	// Announced as introductory until 2026-08-31 and still charged after it.
	{"claude-sonnet-5", []string{"claude-sonnet-5", "claude-sonnet-5-0", "claude-sonnet-5.0", "claude-5-sonnet"}, []row{{rates: rates{2000, 10000, 200, 2500, 4000}}}},
	{"claude-sonnet-4-6", []string{"claude-sonnet-4-6", "claude-sonnet-4.6"}, []row{
		{rates: sonnet, over: 200_000, above: sonnetLong},
		{from: "2026-03-13", rates: sonnet},
	}},
	{"claude-sonnet-4-5", []string{"claude-sonnet-4-5", "claude-sonnet-4.5"}, []row{{rates: sonnet, over: 200_000, above: sonnetLong}}},
	{"claude-sonnet-4-0", []string{"claude-sonnet-4", "claude-sonnet-4-0", "claude-4-sonnet"}, []row{{rates: sonnet, over: 200_000, above: sonnetLong}}},

	// Of the tier above 100,000 only input and output are published; its cache rates
	// are the usual multiples of that input.
	{"claude-haiku-5-5", []string{"claude-haiku-5-5", "claude-haiku-5.5"}, []row{
		{rates: rates{100, 500, 10, 125, 200}, over: 100_000, above: rates{500, 2500, 50, 625, 1000}},
	}},
	{"claude-haiku-4-5", []string{"claude-haiku-4-5", "claude-haiku-4.5", "claude-4-5-haiku", "claude-4.5-haiku"}, []row{{rates: rates{1000, 5000, 100, 1250, 2000}}}},
}

var (
	opus       = rates{5000, 25000, 500, 6250, 10000}
	opus4      = rates{15000, 75000, 1500, 18750, 30000}
	sonnet     = rates{3000, 15000, 300, 3750, 6000}
	sonnetLong = rates{6000, 22500, 600, 7500, 12000}
)
