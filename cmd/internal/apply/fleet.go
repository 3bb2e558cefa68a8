// Package apply brings a server to what files say: organisations and teams with their
// limits, the platform's limits, bots, and the policy of reservations. It plans first, so that
// what would change can be shown; a second apply of the same files finds nothing to
// do. What the files do not name is left as it is, and nothing is ever removed.
package apply

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
)

// File is one file that was read, with the name that errors give it.
type File struct {
	Name string
	Text []byte
}

// Fleet is what all files say together.
type Fleet struct {
	Organisations []Organisation
	Teams         []Team
	// Limits, when set, is the whole limits setting: what it leaves out is the build's
	// own default.
	Limits *api.Limits
	Bots   []Bot
	// Policy, when set, is the whole policy.
	Policy *api.BudgetFloor
}

// Team is a team as a file writes it. Limits, when they are there, are all of the
// team's limits: one that is left out inherits the platform's default. The other
// fields are left as they are where they are not written.
type Team struct {
	ID           string          `json:"id"`
	Name         *string         `json:"name,omitempty"`
	Organisation *string         `json:"organisation,omitempty"`
	Suspended    *bool           `json:"suspended,omitempty"`
	Limits       *api.TeamLimits `json:"limits,omitempty"`
}

// Organisation is an organisation as a file writes it. Limits, when they are there,
// are all of its limits: one that is left out is unlimited.
type Organisation struct {
	ID        string          `json:"id"`
	Name      *string         `json:"name,omitempty"`
	Suspended *bool           `json:"suspended,omitempty"`
	Limits    *api.TeamLimits `json:"limits,omitempty"`
}

// Bot is a bot as a file writes it: a team's own, or the platform's when Team is
// empty.
type Bot struct {
	Team string `json:"team,omitempty"`
	api.BotBody
}

// document is one document of a file. A file that is a policy alone may have its
// lists at the top.
type document struct {
	Organisations []Organisation    `json:"organisations"`
	Teams         []Team            `json:"teams"`
	Limits        *api.Limits       `json:"limits"`
	Bots          []Bot             `json:"bots"`
	Policy        *api.BudgetFloor  `json:"policy"`
	Reservations  []api.Reservation `json:"reservations"`
	RepoQuotas    []api.RepoQuota   `json:"repo_quotas"`
}

// Read reads the files into one fleet. A thing that two documents write, an unknown
// field, and a policy that breaks its rules are an *holdfast.InvalidError with the
// place.
func Read(files []File) (Fleet, error) {
	var fleet Fleet
	seen := map[string]bool{}
	for _, file := range files {
		docs, err := yamlfile.Parse(file.Name, file.Text)
		if err != nil {
			return Fleet{}, err
		}
		for _, doc := range docs {
			if err := fleet.add(doc, seen); err != nil {
				return Fleet{}, err
			}
		}
	}
	if len(seen) == 0 {
		return Fleet{}, &holdfast.InvalidError{Field: "-f", Problem: "the files say nothing", Allowed: "documents with organisations, teams, limits, bots, policy"}
	}
	return fleet, nil
}

// add takes one document in. seen holds what earlier ones wrote.
func (f *Fleet) add(doc yamlfile.Document, seen map[string]bool) error {
	var d document
	if err := doc.Decode(&d); err != nil {
		return err
	}
	once := func(key, what string) error {
		if seen[what] {
			return doc.Error(key, what+" is written twice", "each thing once in all files")
		}
		seen[what] = true
		return nil
	}
	for i, org := range d.Organisations {
		id, err := holdfast.FoldName(org.ID)
		if err != nil {
			return place(doc, "organisations", fmt.Sprintf("[%d].id", i), err)
		}
		if err := once("organisations", "organisation "+id); err != nil {
			return err
		}
		org.ID = id
		f.Organisations = append(f.Organisations, org)
	}
	for i, team := range d.Teams {
		id, err := holdfast.FoldName(team.ID)
		if err != nil {
			return place(doc, "teams", fmt.Sprintf("[%d].id", i), err)
		}
		if err := once("teams", "team "+id); err != nil {
			return err
		}
		team.ID = id
		f.Teams = append(f.Teams, team)
	}
	for i, bot := range d.Bots {
		if err := foldBot(&bot); err != nil {
			return place(doc, "bots", fmt.Sprintf("[%d]", i), err)
		}
		if err := once("bots", bot.what()); err != nil {
			return err
		}
		f.Bots = append(f.Bots, bot)
	}
	if d.Limits != nil {
		if err := once("limits", "the limits setting"); err != nil {
			return err
		}
		f.Limits = d.Limits
	}
	return f.addPolicy(doc, d, once)
}

func (f *Fleet) addPolicy(doc yamlfile.Document, d document, once func(key, what string) error) error {
	policy, key, prefix := d.Policy, "policy", "policy."
	if d.Reservations != nil || d.RepoQuotas != nil {
		if policy != nil {
			return doc.Error("policy", "the policy is written twice", "either policy, or reservations and repo_quotas at the top")
		}
		policy, key, prefix = &api.BudgetFloor{Reservations: d.Reservations, RepoQuotas: d.RepoQuotas}, doc.Keys()[0], ""
	}
	if policy == nil {
		return nil
	}
	if err := once(key, "the policy"); err != nil {
		return err
	}
	checked, err := normalPolicy(*policy)
	if err != nil {
		return place(doc, key, prefix, err)
	}
	f.Policy = &checked
	return nil
}

func foldBot(bot *Bot) error {
	name, err := holdfast.FoldName(bot.Bot)
	if err != nil {
		return holdfast.InField("bot", err)
	}
	bot.Bot = name
	if bot.Team == "" {
		return nil
	}
	bot.Team, err = holdfast.FoldName(bot.Team)
	return holdfast.InField("team", err)
}

func (b Bot) what() string {
	if b.Team == "" {
		return "bot platform/" + b.Bot
	}
	return "bot team:" + b.Team + "/" + b.Bot
}

// place puts an error of a rule at the key of its document.
func place(doc yamlfile.Document, key, path string, err error) error {
	invalid, ok := err.(*holdfast.InvalidError) //nolint:errorlint // the rules return the bare error
	if !ok {
		return err
	}
	field := invalid.Field
	if path != "" {
		field = path + field
	}
	return doc.Error(key, field+": "+invalid.Problem, invalid.Allowed)
}

// normalPolicy is a policy as the server stores it: checked, names folded.
func normalPolicy(policy api.BudgetFloor) (api.BudgetFloor, error) {
	text, err := json.Marshal(api.BudgetFloor{Reservations: policy.Reservations, RepoQuotas: policy.RepoQuotas})
	if err != nil {
		return api.BudgetFloor{}, fmt.Errorf("encode the policy: %w", err)
	}
	checked, err := budgetfloor.Decode(text)
	if err != nil {
		return api.BudgetFloor{}, err
	}
	if text, err = json.Marshal(checked); err != nil {
		return api.BudgetFloor{}, fmt.Errorf("encode the policy: %w", err)
	}
	var normal api.BudgetFloor
	if err := json.Unmarshal(text, &normal); err != nil {
		return api.BudgetFloor{}, fmt.Errorf("read the policy back: %w", err)
	}
	return normal, nil
}
