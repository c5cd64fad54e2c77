// Package shadow observes a request and its response, both of which pass unchanged. The middleware uses it with
// WithShadow: a [Body] is read in advance, a [Tee] observes the response, and a [Product] is what is stored of it.
package shadow
