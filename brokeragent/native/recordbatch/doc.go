// Package recordbatch reads Kafka's record batches (format v2) without decoding what they carry.
//
// It promises:
//   - a Header is only returned for 61 bytes that can be the head of a batch: magic 2, lengths and offsets in range;
//   - Verify covers everything Kafka's CRC covers (byte 21 to the end). Base offset, length, leader epoch and magic lie
//     outside it, which is why an owner may set offset and epoch in place and why a log has to check offsets itself;
//   - nothing here allocates in proportion to a length field before the bytes are there.
//
// The caller owes: batches it stores come out of ValidateForProduce, or were verified when they were stored.
//
// Digest is a hash chain over the 61-byte heads. Each head carries the CRC of its contents, so two byte ranges with equal
// digests hold the same batches at the same offsets and epochs, and the chain is available at every batch boundary at the
// cost of one small hash a batch (R25, R29).
//
// Start reading at header.go.
package recordbatch
