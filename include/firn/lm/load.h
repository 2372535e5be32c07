// Reads and writes folders of Hugging Face's transformers: config.json and weights in safetensors.
#pragma once

#include <string>

#include "firn/io/safetensors.h"
#include "firn/lm/gpt2.h"
#include "firn/lm/llama.h"

namespace firn::lm {

/// Overwrites the weights of a model with those of a folder, converted to the model's dtype and
/// device:
///
///   lm::Llama model(lm::LlamaConfig::from_file("SmolLM2-135M"),
///                   {.dtype = bf16, .draw = false});
///   lm::load("SmolLM2-135M", model);
///
/// The folder has config.json and model.safetensors, or several files with an index; see
/// io::SafetensorsFile. Names may lack the prefix "transformer." (GPT-2) or "model." (Llama), as
/// those of files without an output layer. Masks and frequencies that older files hold are left
/// out. GPT-2's weights are [in, out] in the file and [out, in] in firn. The files are mapped while
/// they are read: no other program may shorten them then (see io::SafetensorsFile).
///
/// Throws IoError, before anything is written, that lists all differences: for a config.json that
/// from_file() refuses or that differs from the model's config in what it computes, and for what
/// io::load_safetensors() refuses. Dropouts, initializer_range and ids may differ.
void load(const std::string& folder, Gpt2& model);
void load(const std::string& folder, Llama& model);

/// Writes config.json and the weights to a folder, under the names of transformers, which loads
/// them by from_pretrained(). The folder is made if its parent exists. Weights of more than
/// options.max_bytes become several files with an index.
///
/// Each file is replaced as a whole, config.json last: see io::save_safetensors(). A config.json of
/// another model is removed first, so a save that is cut off leaves no folder of two models. Throws
/// IoError if a file cannot be written. Also throws IoError if the folder has weights in the other
/// form, one file or several, because readers could take the old ones.
void save(const std::string& folder, const Gpt2& model, const io::ShardOptions& options = {});
void save(const std::string& folder, const Llama& model, const io::ShardOptions& options = {});

}  // namespace firn::lm
