package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// operatorList names the enabled operators' accounts in one record, so that two
// changes at once cannot each remove the other's last one.
type operatorList struct {
	ID       string   `json:"id"`
	Accounts []string `json:"accounts"`
}

// listID is the id of the one list.
const listID = "operators"

func operates(a Account) bool { return a.IsOperator() && !a.Disabled }

// enlist puts an operator's account on the list.
func (s *Accounts) enlist(ctx context.Context, a Account) error {
	if !operates(a) {
		return nil
	}
	_, err := s.operators.Insert(ctx, operatorList{ID: listID, Accounts: []string{a.ID}})
	if !errors.Is(err, records.ErrExists) {
		return err
	}
	_, err = s.operators.Update(ctx, listID, func(l *operatorList) error {
		if slices.Contains(l.Accounts, a.ID) {
			return errFresh
		}
		l.Accounts = append(l.Accounts, a.ID)
		return nil
	})
	if errors.Is(err, errFresh) {
		return nil
	}
	return err
}

// strike takes an account off the list, unless nobody would be left on it.
func (s *Accounts) strike(ctx context.Context, id string, spare bool) error {
	_, err := s.operators.Update(ctx, listID, func(l *operatorList) error {
		rest := slices.DeleteFunc(slices.Clone(l.Accounts), func(other string) bool { return other == id })
		if len(rest) == 0 && !spare {
			return fmt.Errorf("account %s: %w", id, ErrLastOperator)
		}
		l.Accounts = rest
		return nil
	})
	switch {
	case errors.Is(err, records.ErrNotFound) && spare:
		return nil
	case errors.Is(err, records.ErrNotFound):
		return fmt.Errorf("account %s: %w", id, ErrLastOperator)
	}
	return err
}
