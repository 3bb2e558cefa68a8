// Package oidc tests the login of browsers against a real provider library. It is a
// module of its own, so that what a provider needs is no part of the product's.
package oidc
