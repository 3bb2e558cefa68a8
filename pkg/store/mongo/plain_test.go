package mongo

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

func TestNoServerIsSaidWithoutTheDriversPictureOfThemAll(t *testing.T) {
	refused := errors.New("dial tcp 10.0.0.1:27017: connect: connection refused")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"one", topology.ServerSelectionError{
			Desc: description.Topology{Servers: []description.Server{{LastError: refused}, {LastError: refused}, {}}}, Wrapped: context.DeadlineExceeded,
		}, "no server answers (dial tcp 10.0.0.1:27017: connect: connection refused)"},
		{"not tried yet", topology.ServerSelectionError{Wrapped: context.DeadlineExceeded}, "no server answers"},
		{"of another kind", context.DeadlineExceeded, "context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := unavailable(c.err)
			if want := capacityledger.ErrUnavailable.Error() + ": " + c.want; got.Error() != want {
				t.Errorf("it says %q, want %q", got, want)
			}
			if !errors.Is(got, context.DeadlineExceeded) || !errors.Is(got, capacityledger.ErrUnavailable) {
				t.Errorf("%v hides its cause", got)
			}
		})
	}
}
