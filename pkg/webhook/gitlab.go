package webhook

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// merge is a merge request event of GitLab.
type merge struct {
	ObjectKind string `json:"object_kind"`
	User       user   `json:"user"`
	Project    struct {
		Path    string `json:"path_with_namespace"`
		HTTPURL string `json:"git_http_url"`
	} `json:"project"`
	Attributes struct {
		IID        int64  `json:"iid"`
		Title      string `json:"title"`
		URL        string `json:"url"`
		Action     string `json:"action"`
		OldRev     string `json:"oldrev"` // with an update that brings commits
		Draft      bool   `json:"draft"`
		WIP        bool   `json:"work_in_progress"`
		Source     string `json:"source_branch"`
		Target     string `json:"target_branch"`
		SourceID   int64  `json:"source_project_id"`
		TargetID   int64  `json:"target_project_id"`
		LastCommit struct {
			ID string `json:"id"`
		} `json:"last_commit"`
	} `json:"object_attributes"`
	Labels  titles `json:"labels"`
	Changes struct {
		Labels *struct {
			Previous titles `json:"previous"`
			Current  titles `json:"current"`
		} `json:"labels"`
		Draft *struct {
			Previous bool `json:"previous"`
			Current  bool `json:"current"`
		} `json:"draft"`
	} `json:"changes"`
}

type titles []struct {
	Title string `json:"title"`
}

func (t titles) names() []string {
	var names []string
	for _, label := range t {
		names = append(names, holdfast.Clip(label.Title, maxField))
	}
	return names
}

func readGitLab(kind string, text []byte) (Event, string, error) {
	if kind != "Merge Request Hook" {
		return Event{}, fmt.Sprintf("the event %q is not about a merge request", holdfast.Clip(kind, 40)), nil
	}
	var m merge
	if err := decode(text, &m); err != nil {
		return Event{}, "", err
	}
	a := m.Attributes
	actions := m.actions()
	if len(actions) == 0 {
		return Event{}, fmt.Sprintf("the action %q starts nothing", holdfast.Clip(a.Action, 40)), nil
	}
	return Event{
		Actions: actions, Repo: m.Project.Path, Number: a.IID, Title: a.Title, URL: a.URL, Sender: m.User.name(),
		HeadRef: a.Source, HeadSHA: a.LastCommit.ID, BaseRef: a.Target, CloneURL: m.Project.HTTPURL, Labels: m.Labels.names(),
		Draft: a.Draft || a.WIP || strings.HasPrefix(strings.ToLower(a.Title), "draft:"), Fork: a.SourceID != a.TargetID,
	}, "", nil
}

// actions are what happened: one update may bring commits, labels and the end of a
// draft at once. What brings none of them is an edit.
func (m merge) actions() []Action {
	switch m.Attributes.Action {
	case "open":
		return []Action{Opened}
	case "reopen":
		return []Action{Reopened}
	case "close":
		return []Action{Closed}
	case "merge":
		return []Action{Merged}
	case "update":
	default:
		return nil
	}
	var actions []Action
	if m.Attributes.OldRev != "" {
		actions = append(actions, Synchronize)
	}
	if c := m.Changes.Draft; c != nil && c.Previous != c.Current {
		if c.Previous {
			actions = append(actions, ReadyForReview)
		} else {
			actions = append(actions, ConvertedDraft)
		}
	}
	if c := m.Changes.Labels; c != nil {
		if gained(c.Previous, c.Current) {
			actions = append(actions, Labeled)
		}
		if gained(c.Current, c.Previous) {
			actions = append(actions, Unlabeled)
		}
	}
	if len(actions) == 0 {
		actions = []Action{Edited}
	}
	return actions
}

// gained says whether to has a label that from has not.
func gained(from, to titles) bool {
	had := map[string]bool{}
	for _, label := range from {
		had[label.Title] = true
	}
	for _, label := range to {
		if !had[label.Title] {
			return true
		}
	}
	return false
}
