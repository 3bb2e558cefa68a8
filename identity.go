package holdfast

import (
	"fmt"
	"strings"
	"unicode"
)

// BotID is a bot's stored name: [a-z0-9][a-z0-9-]{0,62}. A name that a person
// wrote is folded first, see [FoldName].
type BotID string

// TeamID is a team's stored name, of the same grammar as [BotID].
type TeamID string

// OrgID is an organisation's stored name, of the same grammar as [BotID].
type OrgID string

// RunID is a run's id: a ULID, so ids sort by the time that the launch began.
type RunID string

// Tier says whose bot it is. The zero value is no tier; where a stored
// reservation has none it is read as TierPlatform ([ParseIdentity] and the
// policy decoder do that, nobody else).
type Tier string

// The two tiers of an identity.
const (
	// TierPlatform is the deployment's bot: a platform override or the baked catalog.
	TierPlatform Tier = "platform"
	// TierTeam is a team's own bot; its name is unique inside that team only.
	TierTeam Tier = "team"
)

// Identity is who a launch is, as the server's own resolution produced it: a bot
// and the tier that serves it, and for the team tier the team (ADR-155 §11).
// It is comparable and is the map key wherever something is counted per bot; a
// bare name never is, because any team may register a bot under any name. The
// zero Identity is nobody. Only the resolver makes one for a launch; policies and
// stores read them back with [ParseIdentity].
type Identity struct {
	bot  BotID
	tier Tier
	team TeamID
}

// PlatformBot is the identity of the deployment's bot of that name.
func PlatformBot(bot BotID) Identity { return Identity{bot: bot, tier: TierPlatform} }

// TeamBot is the identity of a team's own bot.
func TeamBot(team TeamID, bot BotID) Identity { return Identity{bot: bot, tier: TierTeam, team: team} }

// Bot is the bot's folded name.
func (i Identity) Bot() BotID { return i.bot }

// Tier is the tier that serves the bot.
func (i Identity) Tier() Tier { return i.tier }

// Team is the owning team of a team-tier identity, else empty.
func (i Identity) Team() TeamID { return i.team }

// IsZero says whether it is nobody's identity.
func (i Identity) IsZero() bool { return i == Identity{} }

// String is the one encoding of an identity: "platform/review-pr" or
// "team:acme/feature-dev"; empty for nobody.
func (i Identity) String() string {
	switch i.tier {
	case TierPlatform:
		return "platform/" + string(i.bot)
	case TierTeam:
		return "team:" + string(i.team) + "/" + string(i.bot)
	}
	return ""
}

// ParseIdentity reads what [Identity.String] wrote. A bare bot name, as policies
// stored before tiers existed have it, reads as the platform's. Names are folded.
func ParseIdentity(s string) (Identity, error) {
	where, name, qualified := strings.Cut(s, "/")
	if !qualified {
		where, name = string(TierPlatform), s
	}
	bot, err := FoldName(name)
	if err != nil {
		return Identity{}, err
	}
	if where == string(TierPlatform) {
		return PlatformBot(BotID(bot)), nil
	}
	team, ok := strings.CutPrefix(where, "team:")
	if !ok {
		return Identity{}, &InvalidError{Problem: fmt.Sprintf("%q names no tier", Clip(s, 80)), Allowed: "platform/BOT or team:TEAM/BOT"}
	}
	folded, err := FoldName(team)
	if err != nil {
		return Identity{}, err
	}
	return TeamBot(TeamID(folded), BotID(bot)), nil
}

// MarshalText writes [Identity.String].
func (i Identity) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads what MarshalText wrote; an empty text is nobody.
func (i *Identity) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*i = Identity{}
		return nil
	}
	parsed, err := ParseIdentity(string(text))
	if err != nil {
		return err
	}
	*i = parsed
	return nil
}

// MaxName is how long a name in a request may be before it is folded.
const MaxName = 200

// FoldName turns a name as people write it into the stored form: lower case, with
// blanks, underscores, dots and dashes as single dashes. "feature_dev",
// "Feature Dev" and "feature-dev" are one name. A name that does not fold to the
// stored grammar is an *InvalidError.
func FoldName(s string) (string, error) {
	if len(s) > MaxName {
		return "", &InvalidError{Problem: "the name is too long", Allowed: fmt.Sprintf("at most %d characters", MaxName)}
	}
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(strings.TrimSpace(s)) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
		case r == '-', r == '_', r == ' ', r == '.':
			dash = true
		default:
			return "", &InvalidError{Problem: fmt.Sprintf("%q holds a character that a name cannot have", Clip(s, 80)), Allowed: nameGrammar}
		}
	}
	name := b.String()
	if name == "" || len(name) > 63 {
		return "", &InvalidError{Problem: fmt.Sprintf("%q is not a name", Clip(s, 80)), Allowed: nameGrammar}
	}
	return name, nil
}

const nameGrammar = "1 to 63 letters, digits and dashes, beginning with a letter or digit"

// ValidName says whether s is already in the stored form.
func ValidName(s string) bool {
	folded, err := FoldName(s)
	return err == nil && folded == s
}

// Clip shortens a text that came from outside so that it may stand in a message:
// at most n bytes, control characters and those that reorder a line as blanks, cut at a
// rune.
func Clip(s string, n int) string {
	clean := strings.Map(func(r rune) rune {
		if IsControl(r) {
			return ' '
		}
		return r
	}, s[:min(len(s), 4*n)])
	clean = strings.ToValidUTF8(clean, "?")
	if len(clean) <= n {
		return clean
	}
	cut := n
	for cut > 0 && clean[cut]&0xC0 == 0x80 {
		cut--
	}
	return clean[:cut] + "…"
}

// IsControl says whether a rune steers a terminal or a line instead of standing in it:
// the control characters (those from U+0080 on too, of which one begins an escape
// sequence), the ends of lines and paragraphs, and what turns the direction of the text
// behind it, so that a line reads as something else than it says.
func IsControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || (r >= '\u202a' && r <= '\u202e') || (r >= '\u2066' && r <= '\u2069')
}
