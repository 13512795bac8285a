// Prints how many tokens each argument has, as a JSON array.
import { Tiktoken } from "js-tiktoken/lite";
import ranks from "js-tiktoken/ranks/o200k_base";

const encoding = new Tiktoken(ranks);
console.log(JSON.stringify(process.argv.slice(2).map((text) => encoding.encode(text).length)));
