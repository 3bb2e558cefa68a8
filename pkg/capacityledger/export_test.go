package capacityledger

import "github.com/holdfast-io/holdfast"

// JudgedAsk is an ask on a subject that no check has seen, so that the judge can be
// shown any numbers.
func JudgedAsk(subject holdfast.Subject, ask Ask) Ask {
	ask.subject = subject
	return ask
}
