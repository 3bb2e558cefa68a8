package webhook

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// Action is what happened to a pull request, in one vocabulary for all forges.
type Action string

// The actions that rules name. A forge may say several at once.
const (
	Opened         Action = "opened"
	Reopened       Action = "reopened"
	Synchronize    Action = "synchronize" // commits were pushed to it
	Labeled        Action = "labeled"
	Unlabeled      Action = "unlabeled"
	ReadyForReview Action = "ready_for_review" // it was a draft
	ConvertedDraft Action = "converted_to_draft"
	Edited         Action = "edited"
	Closed         Action = "closed"
	Merged         Action = "merged"
)

// Actions lists every action.
func Actions() []Action {
	return []Action{Opened, Reopened, Synchronize, Labeled, Unlabeled, ReadyForReview, ConvertedDraft, Edited, Closed, Merged}
}

// Event is a pull or merge request event as rules see it.
type Event struct {
	Actions          []Action // never empty
	Repo             string   // "owner/name", or "group/sub/name"
	Number           int64
	Title, URL       string
	Author, Sender   string
	HeadRef, HeadSHA string
	BaseRef          string
	CloneURL         string
	Labels           []string
	Draft            bool
	Fork             bool // it comes from another repository
}

// Is says whether one of the actions happened.
func (e Event) Is(actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return slices.Contains(e.Actions, a) })
}

// field is a value that a rule's inputs may name.
func (e Event) field(name string) (string, bool) {
	switch name {
	case "action":
		return string(e.Actions[0]), true
	case "repo":
		return e.Repo, true
	case "number":
		return strconv.FormatInt(e.Number, 10), true
	case "title":
		return e.Title, true
	case "url":
		return e.URL, true
	case "author":
		return e.Author, true
	case "sender":
		return e.Sender, true
	case "head_ref":
		return e.HeadRef, true
	case "head_sha":
		return e.HeadSHA, true
	case "base_ref":
		return e.BaseRef, true
	case "clone_url":
		return e.CloneURL, true
	case "labels":
		return strings.Join(e.Labels, ","), true
	}
	return "", false
}

// fieldNames are the names that [Event.field] knows.
func fieldNames() []string {
	return []string{"action", "repo", "number", "title", "url", "author", "sender", "head_ref", "head_sha", "base_ref", "clone_url", "labels"}
}

// maxField is how much of a text of an event is used; the rest is cut off.
const maxField = 1000

// clip cuts every text to what is used of it.
func (e Event) clip() Event {
	for _, text := range []*string{&e.Repo, &e.Title, &e.URL, &e.Author, &e.Sender, &e.HeadRef, &e.HeadSHA, &e.BaseRef, &e.CloneURL} {
		*text = holdfast.Clip(strings.TrimSpace(*text), maxField)
	}
	return e
}

// read turns a delivery into an event. ignored says why there is none to act on.
func read(forge Forge, header http.Header, body []byte) (e Event, ignored string, err error) {
	text, err := payload(header, body)
	if err != nil {
		return Event{}, "", err
	}
	switch forge {
	case GitHub:
		e, ignored, err = readGitHub(header.Get("X-Github-Event"), text)
	case Forgejo:
		e, ignored, err = readForgejo(first(header, "X-Forgejo-Event", "X-Gitea-Event", "X-Github-Event"), text)
	case GitLab:
		e, ignored, err = readGitLab(header.Get("X-Gitlab-Event"), text)
	}
	if err != nil || ignored != "" {
		return Event{}, ignored, err
	}
	if e = e.clip(); e.Repo == "" || e.Number <= 0 {
		return Event{}, "", notPayload("it names no repository and no number")
	}
	return e, "", nil
}

// payload is the JSON of a delivery, which a forge may send as a form.
func payload(header http.Header, body []byte) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !form.Has("payload") {
		return nil, notPayload("it is a form without a payload")
	}
	return []byte(form.Get("payload")), nil
}

func notPayload(problem string) error {
	return &holdfast.InvalidError{Field: "body", Problem: problem, Allowed: "the forge's own payload of a pull or merge request event"}
}

func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return notPayload("it is not the JSON of such an event: " + holdfast.Clip(err.Error(), 100))
	}
	return nil
}

func first(header http.Header, names ...string) string {
	for _, name := range names {
		if value := header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

type labels []struct {
	Name string `json:"name"`
}

func (l labels) names() []string {
	var names []string
	for _, label := range l {
		names = append(names, holdfast.Clip(label.Name, maxField))
	}
	return names
}

// pull is the part of a pull request event that GitHub, Gitea and Forgejo share.
type pull struct {
	Action      string `json:"action"`
	Number      int64  `json:"number"`
	PullRequest struct {
		Number  int64  `json:"number"`
		Title   string `json:"title"`
		HTMLURL string `json:"html_url"`
		Draft   bool   `json:"draft"`
		Merged  bool   `json:"merged"`
		Labels  labels `json:"labels"`
		User    user   `json:"user"`
		Head    branch `json:"head"`
		Base    branch `json:"base"`
	} `json:"pull_request"`
	Repository repository `json:"repository"`
	Sender     user       `json:"sender"`
}

type user struct {
	Login    string `json:"login"`
	Username string `json:"username"`
}

func (u user) name() string {
	if u.Login != "" {
		return u.Login
	}
	return u.Username
}

type branch struct {
	Ref  string      `json:"ref"`
	SHA  string      `json:"sha"`
	Repo *repository `json:"repo"` // null when the fork is gone
}

type repository struct {
	FullName string `json:"full_name"`
	CloneURL string `json:"clone_url"`
}

func (p pull) event(action Action) Event {
	pr := p.PullRequest
	e := Event{
		Actions: []Action{action}, Repo: p.Repository.FullName, Number: max(pr.Number, p.Number), Title: pr.Title, URL: pr.HTMLURL,
		Author: pr.User.name(), Sender: p.Sender.name(), HeadRef: pr.Head.Ref, HeadSHA: pr.Head.SHA, BaseRef: pr.Base.Ref,
		CloneURL: p.Repository.CloneURL, Labels: pr.Labels.names(), Draft: pr.Draft,
	}
	e.Fork = pr.Head.Repo == nil || !strings.EqualFold(pr.Head.Repo.FullName, p.Repository.FullName)
	return e
}

func readGitHub(kind string, text []byte) (Event, string, error) {
	switch kind {
	case "ping":
		return Event{}, "ping: the webhook is set up", nil
	case "pull_request":
	default:
		return Event{}, fmt.Sprintf("the event %q is not about a pull request", holdfast.Clip(kind, 40)), nil
	}
	var p pull
	if err := decode(text, &p); err != nil {
		return Event{}, "", err
	}
	action := Action(p.Action)
	switch {
	case action == Closed && p.PullRequest.Merged:
		action = Merged
	case !slices.Contains(Actions(), action):
		return Event{}, fmt.Sprintf("the action %q starts nothing", holdfast.Clip(p.Action, 40)), nil
	}
	return p.event(action), "", nil
}

// readForgejo reads what Forgejo and Gitea send. They have no event for a draft that
// becomes ready but "edited", and tell labels without saying which one changed.
func readForgejo(kind string, text []byte) (Event, string, error) {
	if !strings.HasPrefix(kind, "pull_request") || strings.HasPrefix(kind, "pull_request_review") || kind == "pull_request_comment" {
		return Event{}, fmt.Sprintf("the event %q is not about a change of a pull request", holdfast.Clip(kind, 40)), nil
	}
	var p pull
	if err := decode(text, &p); err != nil {
		return Event{}, "", err
	}
	words := map[string]Action{
		"opened": Opened, "reopened": Reopened, "synchronized": Synchronize, "label_updated": Labeled, "label_cleared": Unlabeled,
		"edited": Edited, "closed": Closed,
	}
	action, known := words[p.Action]
	switch {
	case !known:
		return Event{}, fmt.Sprintf("the action %q starts nothing", holdfast.Clip(p.Action, 40)), nil
	case action == Closed && p.PullRequest.Merged:
		action = Merged
	}
	e := p.event(action)
	for _, prefix := range []string{"WIP:", "[WIP]"} { // what marks a draft there
		e.Draft = e.Draft || strings.HasPrefix(strings.ToUpper(strings.TrimSpace(e.Title)), prefix)
	}
	return e, "", nil
}
