package pricing

// google has the text models of Google; storage of caches is not in the table.
var google = []entry{
	{"gemini-3.7-flash", []string{"gemini-3.7-flash"}, flash36},
	{"gemini-3.6-flash", []string{"gemini-3.6-flash"}, flash36},
	{"gemini-3.5-flash-lite", []string{"gemini-3.5-flash-lite"}, []row{{rates: rates{input: 300, output: 2500, read: 30}}}},
	{"gemini-3.5-flash", []string{"gemini-3.5-flash", "gemini-3.5-flash-preview"}, []row{{rates: rates{input: 1500, output: 9000, read: 150}}}},
	{"gemini-3.1-pro-preview", []string{"gemini-3.1-pro-preview", "gemini-3.1-pro-preview-customtools"}, pro3},
	{"gemini-3.1-flash-lite", []string{"gemini-3.1-flash-lite", "gemini-3.1-flash-lite-preview"}, []row{{rates: rates{input: 250, output: 1500, read: 25}}}},
	{"gemini-3-pro-preview", []string{"gemini-3-pro-preview", "gemini-3-pro-text-preview"}, pro3},
	{"gemini-3-flash-preview", []string{"gemini-3-flash-preview"}, []row{{rates: rates{input: 500, output: 3000, read: 50}}}},
	{"gemini-2.5-pro", []string{"gemini-2.5-pro"}, []row{
		{rates: rates{input: 1250, output: 10000, read: 125}, over: 200_000, above: rates{input: 2500, output: 15000, read: 250}},
	}},
	{"gemini-2.5-flash-lite", []string{"gemini-2.5-flash-lite"}, []row{{rates: rates{input: 100, output: 400, read: 10}}}},
	{"gemini-2.5-flash", []string{"gemini-2.5-flash"}, []row{{rates: rates{input: 300, output: 2500, read: 30}}}},
}

var (
	flash36 = []row{
		{rates: rates{input: 750, output: 3750, read: 75}},
		{from: "2027-01-01", rates: rates{input: 1500, output: 7500, read: 150}},
	}
	pro3 = []row{{rates: rates{input: 2000, output: 12000, read: 200}, over: 200_000, above: rates{input: 4000, output: 18000, read: 400}}}
)
