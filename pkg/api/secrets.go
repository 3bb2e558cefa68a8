package api

import "time"

// Secret is what may be known of a team's secret: everything but its value.
type Secret struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by,omitempty" doc:"the name of the token that wrote it last"`
}

// SecretPut sets a secret.
type SecretPut struct {
	Value string `json:"value" minLength:"1" maxLength:"65536" doc:"it is sealed before it is stored, and no route answers with it"`
}
