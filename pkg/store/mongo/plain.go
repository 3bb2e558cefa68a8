package mongo

import (
	"errors"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// plainError says an error of the driver in fewer words; the driver's stays visible to
// errors.Is.
type plainError struct {
	text  string
	cause error
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.cause }

// plain is an error of the driver as people and load balancers read it: where no server
// was found it says what each try met, in place of the driver's picture of them all.
func plain(err error) error {
	var lost topology.ServerSelectionError
	if !errors.As(err, &lost) {
		return err
	}
	var met []string
	for _, server := range lost.Desc.Servers {
		if server.LastError == nil {
			continue
		}
		if text := server.LastError.Error(); !slices.Contains(met, text) {
			met = append(met, text)
		}
	}
	text := "no server answers"
	if len(met) > 0 {
		text += " (" + strings.Join(met, "; ") + ")"
	}
	return plainError{text, err}
}
