package history

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long one history is thought about. They are small: none takes
// a hundredth of it.
const patience = 30 * time.Second

// modelFor is the sequential model in porcupine's terms.
func modelFor(promise Promise, spurious bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, in, out any) (bool, any) {
			return step(promise, spurious, s.(state), in.(*input), out.(*output)) // this package made them
		},
		DescribeOperation: func(in, out any) string { return describe(in.(*input), out.(*output)) },
		DescribeState: func(s any) string {
			of := s.(state)
			return of.String()
		},
	}
}

// judge looks for an order that explains the history.
func judge(p *plan, log []porcupine.Operation, o Options, n int) (Report, error) {
	report := counted(log)
	report.Undecided = int(p.undecided.Load())
	result := porcupine.CheckOperationsTimeout(modelFor(o.Promise, false), log, patience)
	model := modelFor(o.Promise, false)
	if result == porcupine.Illegal && o.Promise == NeverTooMuch {
		model = modelFor(o.Promise, true)
		if result = porcupine.CheckOperationsTimeout(model, log, patience); result == porcupine.Ok {
			report.Spurious++
		}
	}
	switch result {
	case porcupine.Unknown:
		report.Unknown++
	case porcupine.Illegal:
		return report, &IllegalError{Seed: o.Seed, Number: n, Text: fmt.Sprintf("%s\n%s", p.subject, text(log)), Page: page(model, log)}
	case porcupine.Ok:
	}
	return report, nil
}

func counted(log []porcupine.Operation) Report {
	report := Report{Histories: 1, Operations: len(log)}
	for i := range log {
		in, out := log[i].Input.(*input), log[i].Output.(*output)
		if out.kind == lost {
			report.Lost++
		}
		if in.verb != reserve {
			continue
		}
		report.Reserves++
		if in.beside > 0 {
			report.Overlapped++
		}
		switch out.kind {
		case done:
			report.Granted++
		case denied:
			report.Refused++
		case closed, mismatch, unknown, undecided, lost:
		}
	}
	return report
}

// text is the history, one call a line, with the times of call and answer.
func text(log []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range log {
		fmt.Fprintf(&b, "  %3d-%-3d client %d  %s\n", op.Call, op.Return, op.ClientId, describe(op.Input.(*input), op.Output.(*output)))
	}
	return b.String()
}

// page draws the history into a file of its own, which stays.
func page(model porcupine.Model, log []porcupine.Operation) string {
	file, err := os.CreateTemp("", "holdfast-history-*.html")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	_, info := porcupine.CheckOperationsVerbose(model, log, patience)
	if err := porcupine.Visualize(model, info, file); err != nil {
		return err.Error()
	}
	return file.Name()
}
