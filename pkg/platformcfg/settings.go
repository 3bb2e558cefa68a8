// Package platformcfg keeps what an operator sets for the whole platform, one record
// for each family of settings, and the cache that it is read through, whose
// readiness is public.
package platformcfg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Settings are the families.
type Settings struct {
	BudgetFloor *Setting[budgetfloor.Policy]
	UsageCaps   *Setting[UsageCaps]
	RunnerPools *Setting[RunnerPools]
	Maintenance *Setting[Maintenance]
	Limits      *Setting[LimitsSetting]
	Login       *Setting[LoginRules]
}

// Options of [New]. The zero value is the defaults.
type Options struct {
	TTL time.Duration // how long a setting is cached; zero: DefaultTTL
	// Failed is told of a read that failed: of which family, why, and what is served
	// for it ([Stale] or [Never]). Nil tells nobody.
	Failed func(family string, err error, served State)
}

// New opens the collection "settings".
func New(ctx context.Context, db records.DB, clock clock.Clock, options Options) (*Settings, error) {
	table, err := records.NewTable(ctx, db, records.Schema{Name: "settings"}, func(s stored) string { return s.Family }, nil)
	if err != nil {
		return nil, err
	}
	if options.Failed == nil {
		options.Failed = func(string, error, State) {}
	}
	e := env{table, clock, options}
	return &Settings{
		BudgetFloor: newSetting(e, "budget-floor", budgetfloor.Policy.Checked, nil, func(p *budgetfloor.Policy) *time.Time { return &p.UpdatedAt }),
		UsageCaps:   newSetting(e, "usage-caps", UsageCaps.checked, UsageCaps.effective, func(c *UsageCaps) *time.Time { return &c.UpdatedAt }),
		RunnerPools: newSetting(e, "runner-pools", RunnerPools.checked, nil, func(p *RunnerPools) *time.Time { return &p.UpdatedAt }),
		Maintenance: newSetting(e, "maintenance", Maintenance.checked, nil, func(m *Maintenance) *time.Time { return &m.UpdatedAt }),
		Limits:      newSetting(e, "limits", LimitsSetting.checked, LimitsSetting.effective, func(l *LimitsSetting) *time.Time { return &l.UpdatedAt }),
		Login:       newSetting(e, "login", LoginRules.checked, nil, func(l *LoginRules) *time.Time { return &l.UpdatedAt }),
	}, nil
}

// env is what the families share.
type env struct {
	table   *records.Table[stored]
	clock   clock.Clock
	options Options
}

// stored is the record of one family.
type stored struct {
	Family    string          `json:"family"`
	UpdatedAt time.Time       `json:"updated_at"`
	UpdatedBy string          `json:"updated_by,omitempty"`
	Value     json.RawMessage `json:"value"`
}

// ErrConflict: the setting was written since the compare token was read. The error
// is a *ConflictError.
var ErrConflict = errors.New("the setting was changed in between")

// ConflictError says against what a write lost.
type ConflictError struct {
	Family string
	// Stored is the token in force; zero when nothing is written.
	Stored time.Time
}

// Error names the family and the way out.
func (e *ConflictError) Error() string {
	if e.Stored.IsZero() {
		return fmt.Sprintf("%s: nothing is written yet, so the first write carries no updated_at", e.Family)
	}
	return fmt.Sprintf("%s was changed in between: read it again, the updated_at in force is %s", e.Family, e.Stored.Format(time.RFC3339Nano))
}

// Is makes it match [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Setting is one family.
type Setting[T any] struct {
	env
	name      string
	checked   func(T) (T, error)
	effective func(T) T
	token     func(*T) *time.Time
	resolver  *Resolver[T]
}

func newSetting[T any](e env, name string, checked func(T) (T, error), effective func(T) T, token func(*T) *time.Time) *Setting[T] {
	if effective == nil {
		effective = func(v T) T { return v }
	}
	s := &Setting[T]{env: e, name: name, checked: checked, effective: effective, token: token}
	s.resolver = NewResolver(e.clock, s.readForCache, ResolverOptions{
		TTL:    e.options.TTL,
		Failed: func(err error, served State) { e.options.Failed(name, err, served) },
	})
	return s
}

// Name is the family's name, as it stands in addresses.
func (s *Setting[T]) Name() string { return s.name }

// Standing is how well the setting in force is known. It reads nothing.
func (s *Setting[T]) Standing() Standing { return s.resolver.Standing() }

// Lookup is the setting in force, from the cache, with the build's defaults where
// nothing is written, and how well it is known. It never fails, see [State].
func (s *Setting[T]) Lookup(ctx context.Context) (T, State) {
	value, state := s.resolver.Lookup(ctx)
	return s.effective(value), state
}

// Invalidate has every setting read anew at its next use, because another replica
// says that it wrote one. What is cached is served where the reading fails.
func (s *Settings) Invalidate() {
	s.BudgetFloor.resolver.Invalidate()
	s.UsageCaps.resolver.Invalidate()
	s.RunnerPools.resolver.Invalidate()
	s.Maintenance.resolver.Invalidate()
	s.Limits.resolver.Invalidate()
}

// Effective is a value with the build's defaults filled in where it says nothing.
func (s *Setting[T]) Effective(value T) T { return s.effective(value) }

// Reading is a setting as it is stored.
type Reading[T any] struct {
	// Value is as written, without the build's defaults; it carries its compare
	// token. It is the zero value when nothing is written.
	Value     T
	Written   bool
	UpdatedBy string
}

// Read reads the setting from the store, past the cache.
func (s *Setting[T]) Read(ctx context.Context) (Reading[T], error) {
	v, err := s.table.Get(ctx, s.name)
	if errors.Is(err, records.ErrNotFound) {
		return Reading[T]{}, nil
	}
	if err != nil {
		return Reading[T]{}, err
	}
	return s.reading(v.Value)
}

// reading decodes leniently: a field that a newer build wrote is not an error of
// reading, else a rolled back replica would know no policy.
func (s *Setting[T]) reading(row stored) (Reading[T], error) {
	var value T
	if err := json.Unmarshal(row.Value, &value); err != nil {
		return Reading[T]{}, fmt.Errorf("decode setting %s: %w", s.name, err)
	}
	*s.token(&value) = row.UpdatedAt
	return Reading[T]{Value: value, Written: true, UpdatedBy: row.UpdatedBy}, nil
}

func (s *Setting[T]) readForCache(ctx context.Context) (T, bool, error) {
	reading, err := s.Read(ctx)
	return reading.Value, reading.Written, err
}

// Decode reads a value from JSON as people write it, strictly, and checks it; what
// is wrong is an *holdfast.InvalidError that names the field.
func (s *Setting[T]) Decode(data []byte) (T, error) {
	var value T
	if err := holdfast.DecodeJSON(data, &value); err != nil {
		return value, err
	}
	return s.checked(value)
}

// Check refuses a value that cannot be meant, with an *holdfast.InvalidError, and
// returns it as it would be stored: names folded, tiers filled in.
func (s *Setting[T]) Check(value T) (T, error) { return s.checked(value) }

// Write replaces the setting. The value carries the compare token that was read; it
// is zero for the first write only. The error matches [ErrConflict] when somebody
// was faster, and is an *holdfast.InvalidError when the value cannot be meant. What
// is returned carries the new token, which rises strictly; this process reads the
// new value from then on.
func (s *Setting[T]) Write(ctx context.Context, value T, by string) (Reading[T], error) {
	value, err := s.checked(value)
	if err != nil {
		return Reading[T]{}, err
	}
	read := s.token(&value)
	was := read.UTC()
	*read = time.Time{} // the token is kept beside the value, once
	body, err := json.Marshal(value)
	if err != nil {
		return Reading[T]{}, fmt.Errorf("encode setting %s: %w", s.name, err)
	}
	row := stored{Family: s.name, UpdatedBy: by, Value: body}
	defer s.resolver.Invalidate() // after an error too: the write may have happened
	if row, err = s.put(ctx, row, was); err != nil {
		return Reading[T]{}, err
	}
	return s.reading(row)
}

func (s *Setting[T]) put(ctx context.Context, row stored, was time.Time) (stored, error) {
	now := s.clock.Now().Truncate(time.Millisecond)
	old, err := s.table.Get(ctx, s.name)
	switch {
	case errors.Is(err, records.ErrNotFound):
		if !was.IsZero() {
			return stored{}, &ConflictError{Family: s.name}
		}
		row.UpdatedAt = now
		_, err = s.table.Insert(ctx, row)
	case err != nil:
		return stored{}, err
	case !old.Value.UpdatedAt.Equal(was):
		return stored{}, &ConflictError{Family: s.name, Stored: old.Value.UpdatedAt}
	default:
		row.UpdatedAt = now
		if least := was.Add(time.Millisecond); row.UpdatedAt.Before(least) {
			row.UpdatedAt = least
		}
		_, err = s.table.Replace(ctx, records.Versioned[stored]{Value: row, Revision: old.Revision})
	}
	if errors.Is(err, records.ErrExists) || errors.Is(err, records.ErrRevision) || errors.Is(err, records.ErrNotFound) {
		return stored{}, s.lost(ctx)
	}
	return row, err
}

// lost is the conflict of a write that was overtaken between its read and its write.
func (s *Setting[T]) lost(ctx context.Context) error {
	now, err := s.table.Get(ctx, s.name)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return err
	}
	return &ConflictError{Family: s.name, Stored: now.Value.UpdatedAt}
}
