package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/pkg/queue"
)

const (
	claimHandlers = 64
	claimBuffer   = 4096
	claimWithin   = 5 * time.Second
)

// claimAnswer is the wire form of an answer: the grant, or that none is known.
type claimAnswer struct {
	Grant queue.Grant `json:"grant"`
	Err   string      `json:"error,omitempty"`
}

// RequestClaim asks a server. An error means that no answer is known; the server may
// have acted on the claim nevertheless.
func (b *Bus) RequestClaim(ctx context.Context, claim queue.Claim) (queue.Grant, error) {
	body, err := json.Marshal(claim)
	if err != nil {
		return queue.Grant{}, fmt.Errorf("claim %s: %w", claim.Run, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	reply, err := b.nc.RequestWithContext(ctx, claimSubject, body)
	if err != nil {
		return queue.Grant{}, fmt.Errorf("claim %s: %w", claim.Run, err)
	}
	var answer claimAnswer
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return queue.Grant{}, fmt.Errorf("claim %s: answer: %w", claim.Run, err)
	}
	if answer.Err != "" {
		return queue.Grant{}, fmt.Errorf("claim %s: the server says: %s", claim.Run, answer.Err)
	}
	return answer.Grant, nil
}

// ServeClaims answers claims with answer, several at a time, until ctx ends; then it
// returns nil when those that it began are answered. An error of answer tells the
// runner that nothing is known, never a verdict.
func (b *Bus) ServeClaims(ctx context.Context, answer func(context.Context, queue.Claim) (queue.Grant, error)) error {
	return b.serve(ctx, claimSubject, "claims", func(ctx context.Context, m *natsgo.Msg) { b.answerClaim(ctx, m, answer) })
}

// serve hands requests on a subject to handle, several at a time; each request goes to
// one of all servers.
func (b *Bus) serve(ctx context.Context, subject, what string, handle func(context.Context, *natsgo.Msg)) error {
	requests := make(chan *natsgo.Msg, claimBuffer)
	subscription, err := b.nc.ChanQueueSubscribe(subject, serverGroup, requests)
	if err != nil {
		return fmt.Errorf("serve %s: %w", what, err)
	}
	defer func() { _ = subscription.Unsubscribe() }() // fails only when the connection is gone
	var handlers sync.WaitGroup
	defer handlers.Wait()
	closed := b.nc.StatusChanged(natsgo.CLOSED)
	defer b.nc.RemoveStatusListener(closed)
	slots := make(chan struct{}, claimHandlers)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
			return fmt.Errorf("serve %s: %w", what, natsgo.ErrConnectionClosed)
		case m := <-requests:
			slots <- struct{}{}
			handlers.Go(func() {
				defer func() { <-slots }()
				handle(context.WithoutCancel(ctx), m)
			})
		}
	}
}

func (b *Bus) answerClaim(ctx context.Context, m *natsgo.Msg, answer func(context.Context, queue.Claim) (queue.Grant, error)) {
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	var reply claimAnswer
	err := guarded(func() error {
		var claim queue.Claim
		if err := json.Unmarshal(m.Data, &claim); err != nil {
			return err
		}
		grant, err := answer(ctx, claim)
		if err == nil && grant.Verdict == "" {
			err = errors.New("no verdict")
		}
		reply.Grant = grant
		return err
	})
	if err != nil {
		b.options.Log.Warn("a claim could not be answered", "err", err)
		reply = claimAnswer{Err: err.Error()}
	}
	body, err := json.Marshal(reply)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		b.options.Log.Warn("the answer to a claim was lost", "err", err)
	}
}
